#!/usr/bin/env bash
# parity_gate.sh WORKLOAD TARGET: holds what the build recorded on its own hardware to the limits of workload.toml.
source "$(dirname "$0")/common.bash"
takes 2 "WORKLOAD TARGET" "$@"
ours python -m model_build verify "$1" --target "$2" --recorded
