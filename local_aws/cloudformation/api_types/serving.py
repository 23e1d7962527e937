"""What an endpoint is made from; the endpoint itself waits for a Triton and is in `resource_types`."""

from local_aws.cloudformation.api_type import ApiType

SERVING = (
    ApiType(
        name="AWS::SageMaker::Model",
        service="sagemaker",
        create="CreateModel",
        delete="DeleteModel",
        ref="answer.ModelArn",
        attributes={"ModelName": "request.ModelName", "ModelArn": "answer.ModelArn"},
        keys={"ModelName": "request.ModelName"},
        named_by="ModelName",
    ),
    ApiType(
        name="AWS::SageMaker::EndpointConfig",
        service="sagemaker",
        create="CreateEndpointConfig",
        delete="DeleteEndpointConfig",
        ref="answer.EndpointConfigArn",
        attributes={
            "EndpointConfigName": "request.EndpointConfigName",
            "EndpointConfigArn": "answer.EndpointConfigArn",
        },
        keys={"EndpointConfigName": "request.EndpointConfigName"},
        named_by="EndpointConfigName",
    ),
)
