#!/usr/bin/env bash
# record_on_chip.sh WORKLOAD TARGET ROLE_ARN BUCKET INSTANCE_TYPE [IMAGE_URI]: runs evaluation.jsonl through the built model
# on an Inferentia chip and leaves what it gave in recorded/outputs.json, for the parity gate. The image is by default the
# one that build_image.sh left.
source "$(dirname "$0")/common.bash"
takes 5 "WORKLOAD TARGET ROLE_ARN BUCKET INSTANCE_TYPE [IMAGE_URI]" "$@"
found "build/$1/$2/artifact.json" "build_model.sh leaves the build there."
kind=${5#ml.}
image=${6:-$(ours python -m scripts.release.image uri "${kind%%.*}")} || exit
mkdir -p recorded
ours python -m model_build verify "$1" --target "$2" --on sagemaker --set "recommender.role_arn=$3" \
  --set "recommender.bucket=$4" --image-uri "$image" --instance-type "$5" --outputs recorded/outputs.json
