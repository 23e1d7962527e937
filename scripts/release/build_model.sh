#!/usr/bin/env bash
# build_model.sh WORKLOAD TARGET [ARGUMENT...]: builds a model, unless nothing that it is made from has changed.
# Extra arguments go to the build: --on sagemaker --set recommender.role_arn=ARN builds on the target's hardware.
# Engines differ from build to build, so the engine that was measured has to be kept.
source "$(dirname "$0")/common.bash"
takes 2 "WORKLOAD TARGET [ARGUMENT...]" "$@"
workload=$1 target=$2
kept=build/$workload/$target/release.key
key=$(find workloads model_build containers requirements -type f ! -name recommendation.json ! -path '*/__pycache__/*' -print0 \
  | LC_ALL=C sort -z | xargs -0 sha256sum | sha256sum)
if [ -f "build/$workload/$target/artifact.json" ] && [ "$(cat "$kept" 2> /dev/null)" = "$key" ]; then
  echo "$workload for $target: nothing has changed, the build of an earlier release is used."
else
  ours python -m model_build build "$workload" --target "$target" "${@:3}"
  printf '%s\n' "$key" > "$kept"
fi
ours python -m model_build lint "build/$workload/$target/model.tar.gz" --workload "$workload" --target "$target"
