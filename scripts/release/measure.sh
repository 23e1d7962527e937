#!/usr/bin/env bash
# measure.sh WORKLOAD MODEL_NAME ROLE_ARN: runs an advanced job on the deployed model, and leaves its run in runs/candidate.
source "$(dirname "$0")/common.bash"
takes 3 "WORKLOAD MODEL_NAME ROLE_ARN" "$@"
workload=$1 model=$2 role=$3
name=${workload//_/-}-release-$(date -u +%Y%m%d-%H%M%S)
rm -rf runs/candidate
ours python -m inference_recommender run "$workload" --job advanced --name "$name" --set "recommender.model=$model" --set "recommender.role_arn=$role"
mv "runs/$name" runs/candidate
