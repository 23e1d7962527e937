#!/usr/bin/env bash
# measure_url.sh WORKLOAD URL INSTANCE_TYPE: searches the capacity of the server at URL with the load generator, and leaves
# its run in runs/candidate. INSTANCE_TYPE is the type of the one instance behind URL.
source "$(dirname "$0")/common.bash"
takes 3 "WORKLOAD URL INSTANCE_TYPE" "$@"
workload=$1 url=$2 instance_type=$3
name=${workload//_/-}-release-$(date -u +%Y%m%d-%H%M%S)
rm -rf runs/candidate
ours python -m inference_recommender run "$workload" --url "$url" --instances "$instance_type" --name "$name"
mv "runs/$name" runs/candidate
