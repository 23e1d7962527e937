#!/usr/bin/env bash
# smoke_test.sh WORKLOAD ENDPOINT: sends the workload's first requests, through the client that production code uses.
# ENDPOINT is the name of a SageMaker endpoint, or the URL of an ECS service, which also needs the workload's build.
source "$(dirname "$0")/common.bash"
takes 2 "WORKLOAD ENDPOINT" "$@"
workload=$1 endpoint=$2
payloads=workloads/$workload/payloads.jsonl
found "$payloads" "the smoke test sends its first requests, so nothing was asked."
texts=$(mktemp)
trap 'rm -f "$texts"' EXIT
head -n 3 "$payloads" | python -c '
import json, sys
rows = [json.loads(line) for line in sys.stdin]
texts = [json.dumps(row) if len(row) > 1 else next(iter(row.values())) for row in rows]
print(*texts, sep="\0", end="\0")' > "$texts" 2> /dev/null \
  || refuse 2 "$payloads: its first lines are no JSON objects of the model's fields, so nothing was asked."
mapfile -t -d '' requests < "$texts"
status=0
option=--endpoint
[[ $endpoint != http* ]] || option=--url
python -m inference_recommender invoke "$workload" "$option" "$endpoint" -- "${requests[@]}" || status=$?
if [ "$status" -eq 3 ] && [ "$option" = --endpoint ]; then
  echo "If AWS could be reached, why $endpoint does not answer is in CloudWatch, /aws/sagemaker/Endpoints/$endpoint." >&2
fi
exit "$status"
