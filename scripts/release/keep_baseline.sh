#!/usr/bin/env bash
# keep_baseline.sh WORKLOAD BASELINES: keeps the run of what production serves now, for the next release to be compared with.
source "$(dirname "$0")/common.bash"
takes 2 "WORKLOAD BASELINES" "$@"
found runs/candidate/measurements.json "measure.sh leaves the run of what is released there. The baseline stays as it was."
aws s3 sync --delete --only-show-errors runs/candidate "$2/$1" \
  || refuse 3 "The run could not be kept in $2/$1, for the reason above: the next release would be compared with another one."
