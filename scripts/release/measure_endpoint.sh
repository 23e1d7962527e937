#!/usr/bin/env bash
# measure_endpoint.sh WORKLOAD ENDPOINT: loads the deployed endpoint by our own generator, and leaves its run in runs/candidate.
# For instance types on whose hosts a job of Inference Recommender could not start the model.
source "$(dirname "$0")/common.bash"
takes 2 "WORKLOAD ENDPOINT" "$@"
workload=$1 endpoint=$2
name=${workload//_/-}-release-$(date -u +%Y%m%d-%H%M%S)
rm -rf runs/candidate
ours python -m inference_recommender run "$workload" --endpoint "$endpoint" --traffic production --name "$name"
mv "runs/$name" runs/candidate
