#!/usr/bin/env bash
# Deploys every stack to a local account, changes a recommendation, breaks an archive and destroys the stacks.
# `make rehearse` calls this. It works in a copy of the repository, below build/rehearsal or the folder in $1.
set -euo pipefail
cd "$(dirname "$0")/.."
origin=$PWD tree=${1:-$PWD/build/rehearsal}
export LOCAL_AWS_TRITON_VENV=$origin/.venv-triton PYTHONPATH=. COLUMNS=120
SCALED="spellcheck text_classification question_answering query_intent"

REPOSITORY=team/transformers-in-production
CONNECTION=arn:aws:codeconnections:us-east-1:123456789012:connection/00000000-0000-0000-0000-000000000000

say() { printf '\n## %s\n' "$1"; }
note() { printf '%s\n' "$1" | sed 's/^/# /'; }
shown() {
  local text="" word
  for word in "$@"; do
    case $word in *[\ \"\{]*) text+=" '$word'" ;; *) text+=" $word" ;; esac
  done
  printf '$%s\n' "$text"
}
run() { shown "$@"; "$@" 2>&1; }
run_failing() {
  shown "$@"
  local status=0
  "$@" 2>&1 || status=$?
  note "exit code $status"
  [ "$status" -ne 0 ]
}

account=""
stop_account() {
  [ -n "$account" ] || return 0
  kill -INT "$account" 2>/dev/null || true
  wait "$account" 2>/dev/null || true
  account=""
}
trap stop_account EXIT

start_account() {
  mkdir -p -m 700 .local_aws
  local exports=.local_aws/exports log=.local_aws/account.log
  printf '$ python -m local_aws --pace quick 2> %s &  source %s\n' "$log" "$exports"
  set -m # a process group of its own: Ctrl-C ends the command in front first, then the account
  python -m local_aws --pace quick > /dev/null 2> "$log" & # its exports hold its key, and are in a file of its own
  account=$!
  set +m
  until grep -qs AWS_EC2_METADATA_DISABLED "$exports"; do
    kill -0 "$account" 2>/dev/null || { cat "$log" >&2; exit 1; }
    sleep 0.2
  done
  # shellcheck disable=SC1090
  source "$exports"
}

invoke_all() {
  run python -m inference_recommender invoke spellcheck "ergonomic webcam for travelles"
  run python -m inference_recommender invoke text_classification "It works without any trouble."
  run python -m inference_recommender invoke question_answering \
    '{"question": "What is the height of the lamp?", "context": "The lamp has a height of 46 cm and comes in blue."}'
}

rm -rf "$tree"
mkdir -p "$tree"
tar --create --exclude='./.*' --exclude=./node_modules --exclude=./build --exclude=./runs --exclude=./cdk.out \
  --exclude=__pycache__ --exclude='*.egg-info' --exclude=recommendation.json --exclude=./tests . | tar --extract --directory "$tree"
cd "$tree"

say "1. Build every workload for this machine's CPU"
run python -m model_build build --all --target cpu

say "2. An AWS account on this machine"
start_account
run cdk bootstrap --ci -c hosting-target=cpu

say "3. Deploy every stack"
for workload in $SCALED; do
  run python -m scripts.rehearsal.steps recommend "$workload" 2 2 6 3000
done
run cdk synth --quiet --output assembly -c hosting-target=cpu -c "release-repository=$REPOSITORY" -c "release-connection=$CONNECTION"
STACKS=$(cdk list --app assembly | grep --invert-match /)
for stack in $STACKS; do
  run cdk deploy "$stack" --app assembly --require-approval never --ci
done

say "4. Invoke each endpoint: a real Triton answers"
invoke_all

say "5. Another recommendation: the scaling changes, the number of instances does not"
run python -m scripts.rehearsal.steps show SpellcheckStack
run python -m scripts.rehearsal.steps recommend spellcheck 5 1 9 4800
run cdk deploy SpellcheckStack -c hosting-target=cpu --require-approval never --ci
run python -m scripts.rehearsal.steps show SpellcheckStack

say "6. A broken archive: the update is rolled back, and the old endpoint still answers"
run python -m scripts.rehearsal.steps break spellcheck
run python -m scripts.rehearsal.steps recommend spellcheck 5 1 9 4800
run_failing cdk deploy SpellcheckStack -c hosting-target=cpu --require-approval never --ci
run python -m scripts.rehearsal.steps show SpellcheckStack
run python -m inference_recommender invoke spellcheck "ergonomic webcam for travelles"

say "7. Destroy every stack"
for stack in $(printf '%s\n' $STACKS | tac); do # the shared network last: the other stacks are in it
  run cdk destroy "$stack" --app assembly --force --ci
done
