#!/usr/bin/env bash
# measure_in_vpc.sh WORKLOAD PROJECT URL INSTANCE_TYPE PLACE ROLE_ARN: measures an ECS service inside its VPC and leaves the
# run in runs/candidate. The CodeBuild project PROJECT is in the service's VPC. Its build runs with ROLE_ARN, and gets its
# files and packages from the S3 folder PLACE, because the VPC has no route to the internet.
source "$(dirname "$0")/common.bash"
takes 6 "WORKLOAD PROJECT URL INSTANCE_TYPE PLACE ROLE_ARN" "$@"
workload=$1 project=$2 url=$3 instance_type=$4 place=$5 role=$6
found build/"$workload"/*/artifact.json "build_model.sh leaves the build there."
rm -rf packages runs/candidate
ours python -m pip install --quiet --require-hashes --only-binary :all: --no-deps --target packages \
  --requirement requirements/project.txt
files=$(mktemp -d)
trap 'rm -rf "$files"' EXIT
mkdir "$files/source"
# The build is a link to an artifact of an earlier step. By cdk.json the commands find the project's root.
cp -rL --parents aws_api cdk.json containers inference_recommender requirements scripts workloads packages "build/$workload" "$files/source"
(cd "$files/source" && ours python -m zipfile -c ../source.zip .)
aws s3 rm --recursive --only-show-errors "$place/" && aws s3 cp --only-show-errors "$files/source.zip" "$place/source.zip" \
  || refuse 3 "The files of the build could not be put into $place, for the reason above."
variables=()
for each in WORKLOAD="$workload" URL="$url" INSTANCE_TYPE="$instance_type" PLACE="$place"; do
  variables+=("name=${each%%=*},value=${each#*=},type=PLAINTEXT")
done
id=$(aws codebuild start-build --project-name "$project" --service-role-override "$role" --source-type-override S3 \
  --source-location-override "${place#s3://}/source.zip" --environment-variables-override "${variables[@]}" \
  --query build.id --output text) || refuse 3 "$project could not be started, for the reason above."
status=IN_PROGRESS
while [ "$status" = IN_PROGRESS ]; do
  sleep "${POLL_S:-15}"
  read -r status log < <(aws codebuild batch-get-builds --ids "$id" --query 'builds[0].[buildStatus,logs.deepLink]' --output text) \
    || refuse 3 "The state of the build $id could not be read, for the reason above."
done
[ "$status" = SUCCEEDED ] || refuse 1 "The build $id in the VPC of the service ended as $status. Its log: $log"
aws s3 cp --recursive --only-show-errors "$place/run" runs/candidate \
  || refuse 3 "The run could not be read from $place/run, for the reason above."
found runs/candidate/measurements.json "measure_url.sh leaves it in the VPC's build."
