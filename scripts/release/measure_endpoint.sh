#!/usr/bin/env bash
# measure_endpoint.sh WORKLOAD ENDPOINT TARGET: loads the deployed endpoint by our own generator, and leaves its run in runs/candidate.
# For instance types on whose hosts a job of Inference Recommender could not start the model.
source "$(dirname "$0")/common.bash"
takes 3 "WORKLOAD ENDPOINT TARGET" "$@"
workload=$1 endpoint=$2 target=$3
name=${workload//_/-}-release-$(date -u +%Y%m%d-%H%M%S)
rm -rf runs/candidate
ours python -m inference_recommender run "$workload" --endpoint "$endpoint" --target "$target" --traffic production --name "$name"
mv "runs/$name" runs/candidate
