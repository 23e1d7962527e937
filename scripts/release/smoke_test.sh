#!/usr/bin/env bash
# smoke_test.sh WORKLOAD ENDPOINT: sends the workload's first requests, through the client that production code uses.
set -euo pipefail
cd "$(dirname "$0")/../.."
workload=$1 endpoint=$2
mapfile -t requests < <(head -n 3 "workloads/$workload/payloads.jsonl" | python -c '
import json, sys
rows = [json.loads(line) for line in sys.stdin]
print(*(json.dumps(row) if len(row) > 1 else next(iter(row.values())) for row in rows), sep="\n")')
if ! python -m inference_recommender invoke "$workload" --endpoint "$endpoint" "${requests[@]}"; then
  echo "The deployed endpoint $endpoint does not answer. Its log is in CloudWatch, /aws/sagemaker/Endpoints/$endpoint." >&2
  exit 1
fi
