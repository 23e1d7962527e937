#!/usr/bin/env bash
# keep_baseline.sh WORKLOAD BASELINES: keeps the run of what production serves now, for the next release to be compared with.
set -euo pipefail
cd "$(dirname "$0")/../.."
aws s3 sync --delete --only-show-errors runs/candidate "$2/$1"
