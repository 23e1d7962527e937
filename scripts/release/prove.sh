#!/usr/bin/env bash
# prove.sh WORKLOAD ENDPOINT: proves what runs/candidate recommends, on the deployed endpoint. Fails if it is missed or
# inconclusive. For workloads with `prove = true` below [recommender].
source "$(dirname "$0")/common.bash"
takes 2 "WORKLOAD ENDPOINT" "$@"
workload=$1 endpoint=$2 file=runs/candidate/recommendation.json
found "$file" "measure.sh leaves the recommendation there, where a candidate meets the objective."
ours python -m inference_recommender prove "$workload" --from "$file" --endpoint "$endpoint" --runs runs/candidate
