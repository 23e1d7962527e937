#!/usr/bin/env bash
# build_image.sh KIND [REPOSITORY]: builds an image of containers/, asks it whether it is whole, pushes it, and leaves
# build/images/KIND/image.json, by which a template names it. An image of the same files is pushed once and used again.
# build_image.sh --mirror KIND [REPOSITORY]: copies the image that it is built from into your registry, by its digest, and
# pins that in containers/base-digests.json. Commit that file: from then on the base changes only with it.
source "$(dirname "$0")/common.bash"
takes 1 "[--mirror] KIND [REPOSITORY]" "$@"
mirror=
if [ "$1" = --mirror ]; then
  mirror=yes
  shift
  takes 1 "--mirror KIND [REPOSITORY]" "$@"
fi
kind=$1 repository=${2:-}
export AWS_PAGER= DOCKER_BUILDKIT=1
export BUILDX_NO_DEFAULT_ATTESTATIONS=1 # SageMaker takes an image, and no index of an image and its attestation
region=${AWS_REGION:-${AWS_DEFAULT_REGION:-$(aws configure get region || true)}}
[ -n "$region" ] || refuse 2 "No region is set: set AWS_REGION to the one that the image is for."
plan=$(python -m scripts.release.image plan "$kind" "$region") || exit
eval "$plan" # content, dockerfile, base, base_name, base_registry, base_digest, own_base, arguments
account=$(aws sts get-caller-identity --query Account --output text) \
  || refuse 3 "AWS does not say whose credentials these are, for the reason above: the image was not built."
registry=$account.dkr.ecr.$region.$suffix tag=$kind-$content

# own_digest IMAGE_ID: prints the digest of an image in the repository, or nothing if it is not there.
own_digest() {
  local found errors
  errors=$(mktemp)
  if found=$(aws ecr describe-images --region "$region" --repository-name "$repository" --image-ids "$1" \
    --query 'imageDetails[0].imageDigest' --output text 2> "$errors"); then
    echo "$found"
  elif ! grep -q ImageNotFoundException "$errors"; then
    cat "$errors" >&2
    rm "$errors"
    return 3
  fi
  rm -f "$errors"
}

log_in() { aws ecr get-login-password --region "$region" | docker login --username AWS --password-stdin "$1" > /dev/null; }

if [ -z "$repository" ]; then
  repository=transformers-in-production
  aws ecr describe-repositories --region "$region" --repository-names "$repository" > /dev/null 2>&1 \
    || aws ecr create-repository --region "$region" --repository-name "$repository" --image-tag-mutability IMMUTABLE \
      --image-scanning-configuration scanOnPush=true > /dev/null \
    || refuse 3 "The repository $repository could neither be read nor made, for the reason above."
fi

if [ -z "$mirror" ]; then
  digest=$(own_digest "imageTag=$tag") || refuse 3 "$repository in $registry could not be read, for the reason above."
  if [ -n "$digest" ]; then
    echo "$kind: nothing has changed, the image that was pushed is used: $digest"
    python -m scripts.release.image leave "$kind" "$content" "$registry" "$repository" "$digest" || exit
    exit 0
  fi
fi

command -v docker > /dev/null || refuse 3 "docker is not on PATH, and it builds the image. Install Docker, or let the pipeline build it."
if [ -n "$own_base" ]; then
  [ -z "$mirror" ] || refuse 2 "$kind is built from our own image $own_base: mirror that one's base."
  bash "${BASH_SOURCE[0]}" "$own_base" "$repository" || exit
  base=$(python -m scripts.release.image uri "$own_base") || exit
else
  log_in "$base_registry" || refuse 3 "docker could not log in to $base_registry, for the reason above."
  if [ -z "$base_digest" ] || [ -n "$mirror" ]; then
    base_digest=$(aws ecr batch-get-image --region "$region" --registry-id "${base_registry%%.*}" \
      --repository-name "${base_name%%:*}" --image-ids "imageTag=${base_name#*:}" \
      --query 'images[0].imageId.imageDigest' --output text) \
      || refuse 3 "The digest of $base could not be had, for the reason above."
    [[ $base_digest == sha256:* ]] || refuse 3 "$base_registry has no $base_name: the image was not built."
    [ -n "$mirror" ] || echo "$base_name is $base_digest today, and is not pinned: $0 --mirror $kind pins and keeps it."
  fi
  base=${base%:*}@$base_digest
fi
log_in "$registry" || refuse 3 "docker could not log in to $registry, for the reason above."

if [ -n "$mirror" ]; then
  copy=$registry/$repository:base-${base_digest#sha256:}
  # A copy as it is: an index around it would have another digest.
  docker buildx imagetools create --prefer-index=false --tag "$copy" "$base" \
    || refuse 3 "$base could not be copied to $registry, for the reason above."
  found=$(own_digest "imageDigest=$base_digest") || refuse 3 "$repository could not be read, for the reason above."
  [ "$found" = "$base_digest" ] || refuse 3 "$copy is not the image $base_digest that was to be copied."
  python -m scripts.release.image pin "$base_name" "$base_digest" || exit
  exit 0
fi

if [ -z "$own_base" ]; then
  found=$(own_digest "imageDigest=$base_digest") || refuse 3 "$repository could not be read, for the reason above."
  [ -z "$found" ] || base=$registry/$repository@$base_digest
fi
image=$registry/$repository:$tag
# shellcheck disable=SC2086
docker build --platform linux/amd64 --build-arg "BASE=$base" $arguments --tag "$image" --file "$dockerfile" containers \
  || refuse 3 "The image $kind could not be built, for the reason above."
docker run --rm --interactive --entrypoint python3 "$image" - "$kind" < scripts/release/check_image.py \
  || refuse 1 "The image $kind was built and is not whole, for the reason above: it was not pushed."
docker push --quiet "$image" || refuse 3 "$image could not be pushed, for the reason above."
digest=$(own_digest "imageTag=$tag") || refuse 3 "$repository could not be read, for the reason above."
[ -n "$digest" ] || refuse 3 "$image was pushed, and the registry does not have it."
python -m scripts.release.image leave "$kind" "$content" "$registry" "$repository" "$digest" || exit
