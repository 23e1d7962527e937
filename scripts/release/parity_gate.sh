#!/usr/bin/env bash
# parity_gate.sh WORKLOAD TARGET [OUTPUTS]: holds what the build recorded on its own hardware to the limits of
# workload.toml. A build for Inferentia recorded nothing: OUTPUTS is the file that `python -m containers.batch.record`
# wrote with the archive on an inf1 or inf2 instance. It is compared and recorded first.
source "$(dirname "$0")/common.bash"
takes 2 "WORKLOAD TARGET [OUTPUTS]" "$@"
[ -z "${3:-}" ] || ours python -m model_build verify "$1" --target "$2" --outputs "$3"
ours python -m model_build verify "$1" --target "$2" --recorded
