#!/usr/bin/env bash
# check_machine.sh PYTHON: says in one sentence what an installation would miss on this machine, with the command that
# mends it, and exits with 3. PYTHON is empty where the Makefile saw no Python that fits.
set -euo pipefail
python=$1

refuse() { echo "$1" >&2; exit 3; }

system="$(uname -s) $(uname -m)"
[ "$system" = "Linux x86_64" ] || refuse "This needs Linux on x86-64, for the Triton server's wheel has no other build, and\
 this is $system: try \`docker run --rm -it --platform linux/amd64 -v \"\$PWD\":/repo -w /repo python:3.13 make run\`."

[ -n "$python" ] || refuse "There is no Python 3.11, 3.12 or 3.13 on this machine's PATH: install one, on Debian and Ubuntu\
 with \`sudo apt install python3 python3-venv\`, or name one with \`make run PYTHON=/path/to/python\`."

"$python" -c 'import ensurepip, venv' 2> /dev/null || refuse "$python cannot make virtual environments: install its venv, on\
 Debian and Ubuntu with \`sudo apt install $("$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')\`."
