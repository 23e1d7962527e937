#!/usr/bin/env bash
# keep_baseline.sh WORKLOAD BASELINES: what production serves now is what the next release is compared with.
set -euo pipefail
cd "$(dirname "$0")/../.."
aws s3 sync --delete --only-show-errors runs/candidate "$2/$1"
