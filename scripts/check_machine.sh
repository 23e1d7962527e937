#!/usr/bin/env bash
# check_machine.sh PYTHON TRITON_PYTHON: says in one sentence what an installation would miss on this machine, with the command that
# mends it, and exits with 3. Either is empty where the Makefile saw no Python that fits.
set -euo pipefail
python=$1 triton_python=$2

refuse() { echo "$1" >&2; exit 3; }

system="$(uname -s) $(uname -m)"
[ "$system" = "Linux x86_64" ] || refuse "This needs Linux on x86-64, for the Triton server's wheel has no other build, and\
 this is $system: try \`docker run --rm -it --platform linux/amd64 -v \"\$PWD\":/repo -w /repo python:3.13 make run\`."

[ -n "$python" ] || refuse "There is no Python 3.11, 3.12 or 3.13 on this machine's PATH: install one, on Debian and Ubuntu\
 with \`sudo apt install python3 python3-venv\`, or name one with \`make run PYTHON=/path/to/python\`."

[ -n "$triton_python" ] || refuse "The Triton server's Python backend needs numpy 1, which has no wheel for Python 3.13: install\
 Python 3.12 or 3.11 beside it, for example with \`pip install uv && uv python install 3.12\`, or name one with\
 \`make run TRITON_PYTHON=/path/to/python3.12\`."

for each in "$python" "$triton_python"; do
  "$each" -c 'import ensurepip, venv' 2> /dev/null || refuse "$each cannot make virtual environments: install its venv, on\
 Debian and Ubuntu with \`sudo apt install $("$each" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])')\`."
done
