#!/usr/bin/env bash
# The whole walk on one machine: build, deploy, measure, deploy what was measured, ask. `make run` calls this.
# Every command is echoed as a reader would type it. The AWS account is this machine's own and ends with the walk.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n\033[1m%s\033[0m\n' "$1"; }
run() {
  local shown="" word
  for word in "$@"; do
    case $word in *' '*) shown+=" \"$word\"" ;; *) shown+=" $word" ;; esac
  done
  printf '\033[2m$%s\033[0m\n' "$shown"
  "$@"
}

account=""
stop_account() {
  [ -n "$account" ] || return 0
  kill -INT "$account" 2>/dev/null || true
  wait "$account" 2>/dev/null || true
  account=""
}
trap stop_account EXIT

say "1. Build: checkpoint to a verified Triton archive"
run python -m model_build build spellcheck --target cpu

say "2. An AWS account on this machine"
mkdir -p .local_aws
exports=.local_aws/exports log=.local_aws/account.log
printf '\033[2m$ python -m local_aws --port 0 > %s 2> %s &  source %s\033[0m\n' "$exports" "$log" "$exports"
: > "$exports"
set -m # a process group of its own: Ctrl-C ends the command in front first, then the account
python -m local_aws --port 0 > "$exports" 2> "$log" &
account=$!
set +m
until grep -q AWS_EC2_METADATA_DISABLED "$exports"; do
  kill -0 "$account" 2>/dev/null || { status=0; wait "$account" || status=$?; cat "$log" >&2; exit "$status"; }
  sleep 0.2
done
cat "$exports"
# shellcheck disable=SC1090
source "$exports"

say "3. Deploy: one instance, until there is a recommendation"
run cdk bootstrap --ci
run cdk deploy SpellcheckStack -c recommendation=ignore --require-approval never --ci

say "4. Measure: an advanced Inference Recommender job of about a minute"
run python -m inference_recommender run spellcheck --job advanced --traffic quick

say "5. Deploy again, with the recommendation's numbers"
run cdk deploy SpellcheckStack --require-approval never --ci

say "6. Ask the endpoint"
run python -m inference_recommender invoke spellcheck \
  "waterproof hiking boots for teengaers" \
  "adjustablescratching post for puppies" \
  "ergonomic webcam for travelles" \
  "running shoes for women"

say "Done. The report: $(find runs -name report.html -newer workloads/spellcheck/workload.toml | sort | tail -n 1)"
