#!/usr/bin/env bash
# performance_gate.sh WORKLOAD BASELINES: compares runs/candidate with the run of what production serves, in the S3
# folder BASELINES/WORKLOAD. Fails only where the difference is beyond the noise.
source "$(dirname "$0")/common.bash"
takes 2 "WORKLOAD BASELINES" "$@"
workload=$1 baselines=$2
rm -rf runs/baseline
aws s3 cp --recursive --only-show-errors "$baselines/$workload" runs/baseline \
  || refuse 3 "The baseline in $baselines/$workload could not be read, for the reason above: nothing was compared."
# The AWS CLI makes the folder also where S3 has nothing for it.
if [ -z "$(ls -A runs/baseline 2> /dev/null)" ]; then
  echo "Production has served no $workload yet: there is nothing to compare with."
  exit 0
fi
ours python -m inference_recommender compare runs/baseline runs/candidate
