#!/usr/bin/env bash
# install_locked.sh PYTHON LOCK...: installs what the locks pin into PYTHON's environment, wheels alone, each of them compared
# with its hash. The LOCK `torch` is the one of the build that pip finds here: PyTorch's own without CUDA where some index
# or folder has it, else PyPI's.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1
locks=()
for lock in "${@:2}"; do
  if [ "$lock" = torch ]; then
    lock=requirements/torch-cpu.txt
    pin=$(sed -n 's/^\(torch==[^ ]*\).*/\1/p' "$lock")
    "$python" -m pip install --quiet --disable-pip-version-check --dry-run --ignore-installed --no-deps "$pin" > /dev/null 2>&1 \
      || lock=requirements/torch-cuda.txt
  fi
  locks+=(--requirement "$lock")
done
# A lock is complete, so nothing is resolved: what it lacks is not installed at all.
"$python" -m pip install --disable-pip-version-check --require-hashes --only-binary :all: --no-deps "${locks[@]}"
# Two packages bring aws_cdk/cloud_assembly_schema, and the one in aws-cdk-lib has to stay: it is installed once more, last.
last=$(mktemp)
trap 'rm -f "$last"' EXIT
for lock in "${locks[@]}"; do
  if [ "$lock" != --requirement ]; then
    awk '/^aws-cdk-lib==/ { on = 1 } on { print } on && !/\\$/ { exit }' "$lock" >> "$last"
  fi
done
if [ -s "$last" ]; then
  "$python" -m pip install --disable-pip-version-check --require-hashes --only-binary :all: --no-deps --force-reinstall --requirement "$last"
fi
