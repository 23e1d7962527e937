#!/usr/bin/env bash
# parity_gate.sh WORKLOAD TARGET: holds what the build recorded on its own hardware to the limits of workload.toml.
set -euo pipefail
cd "$(dirname "$0")/../.."
python -m model_build verify "$1" --target "$2" --recorded
