# A user of the AWS CLI: objects, a stack, the endpoint's model, an answer in JSON, a job's log. Each line of stdout is a result.
# aws_cli.sh AWS ROLE IMAGE BUCKET, with AWS_ENDPOINT_URL of the account, in a folder that may be written.
set -euo pipefail
aws=$1 role=$2 image=$3 bucket=$4
"$aws" sts get-caller-identity --query Account --output text

mkdir -p folder/below
echo one > folder/one.txt
echo two > folder/below/two.txt
"$aws" s3 sync folder "s3://$bucket/cli" --quiet
"$aws" s3 cp "s3://$bucket/cli/below/two.txt" - 
"$aws" s3 ls "s3://$bucket/cli/" --recursive | awk '{ print $4 }' | xargs

cat > stack.yaml <<YAML
Resources:
  Model:
    Type: AWS::SageMaker::Model
    Properties:
      ExecutionRoleArn: $role
      PrimaryContainer: { Image: "$image", ModelDataUrl: "s3://$bucket/echo.tar.gz" }
  Config:
    Type: AWS::SageMaker::EndpointConfig
    Properties:
      ProductionVariants:
        - { VariantName: AllTraffic, ModelName: !GetAtt Model.ModelName, InstanceType: ml.c5.xlarge, InitialInstanceCount: 1, InitialVariantWeight: 1 }
  Endpoint:
    Type: AWS::SageMaker::Endpoint
    Properties: { EndpointName: cli, EndpointConfigName: !GetAtt Config.EndpointConfigName }
Outputs:
  Endpoint: { Value: !GetAtt Endpoint.EndpointName }
YAML
"$aws" cloudformation deploy --stack-name cli --template-file stack.yaml > deployed.log
"$aws" cloudformation describe-stacks --stack-name cli --query 'Stacks[0].Outputs[0].OutputValue' --output text
"$aws" sagemaker wait endpoint-in-service --endpoint-name cli
"$aws" sagemaker list-endpoints --name-contains cli --query 'Endpoints[].EndpointStatus' --output text

echo '{"inputs": [{"name": "TEXT", "datatype": "BYTES", "shape": [1, 1], "data": ["hello"]}]}' > request.json
"$aws" sagemaker-runtime invoke-endpoint --endpoint-name cli --content-type application/json --body fileb://request.json \
  --query ContentType --output text answer.json
python3 -c 'import json; print(json.load(open("answer.json"))["outputs"][0]["data"])'

model=$("$aws" cloudformation describe-stack-resource --stack-name cli --logical-resource-id Model \
  --query StackResourceDetail.PhysicalResourceId --output text)
cat > job.json <<JSON
{
  "JobName": "cli-job", "JobType": "Advanced", "RoleArn": "$role",
  "InputConfig": {
    "ModelName": "${model##*/}", "JobDurationInSeconds": 7200,
    "TrafficPattern": { "TrafficType": "PHASES", "Phases": [{ "InitialNumberOfUsers": 1, "SpawnRate": 0, "DurationInSeconds": 5 }] },
    "ResourceLimit": { "MaxNumberOfTests": 1, "MaxParallelOfTests": 1 },
    "EndpointConfigurations": [{ "InstanceType": "ml.c5.xlarge" }],
    "ContainerConfig": {
      "Domain": "NATURAL_LANGUAGE_PROCESSING", "Framework": "PYTORCH", "FrameworkVersion": "2.0.0",
      "PayloadConfig": { "SamplePayloadUrl": "s3://$bucket/payloads.tar.gz", "SupportedContentTypes": ["application/json"] }
    }
  },
  "StoppingConditions": { "MaxInvocations": 30000, "ModelLatencyThresholds": [{ "Percentile": "P95", "ValueInMilliseconds": 100 }] }
}
JSON
"$aws" sagemaker create-inference-recommendations-job --cli-input-json file://job.json > job.log
for _ in $(seq 300); do
  status=$("$aws" sagemaker describe-inference-recommendations-job --job-name cli-job --query Status --output text)
  case $status in COMPLETED | FAILED) break ;; esac
done
echo "$status"
"$aws" logs get-log-events --log-group-name /aws/sagemaker/InferenceRecommendationsJobs --log-stream-name cli-job/execution \
  --query 'events[-1].message' --output text
"$aws" cloudformation delete-stack --stack-name cli
"$aws" cloudformation wait stack-delete-complete --stack-name cli
"$aws" sagemaker list-endpoints --name-contains cli --query 'length(Endpoints)' --output text
