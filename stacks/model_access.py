"""What a role needs to bring a packed model up in a SageMaker container: archive, image, logs and metrics.

Shared by the endpoint's own role and by the one Inference Recommender works under.
"""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam

from stacks.endpoint.serving_image import ServingImage
from stacks.grants import acknowledge_resources
from stacks.model_archive import ModelArchive

# An endpoint is created after its model, and the model after its role: the group's last part is unknown here.
ENDPOINT_LOGS = "/aws/sagemaker/Endpoints/*"


def grant_model_files(role: iam.Role, archive: ModelArchive, image: ServingImage) -> None:
    archive.grant_read(role)
    image.grant_pull(role)


def grant_container_telemetry(role: iam.Role, *log_groups: str) -> None:
    arns = [_log_group_arn(role, name) for name in log_groups]
    writing = ["CreateLogGroup", "CreateLogStream", "DescribeLogStreams", "PutLogEvents"]
    iam.Grant.add_to_principal(grantee=role, actions=[f"logs:{action}" for action in writing], resource_arns=arns)
    acknowledge_resources(role, arns, "A log group is named after an endpoint that has no name yet.")
    role.add_to_policy(
        iam.PolicyStatement(
            actions=["cloudwatch:PutMetricData"],
            resources=["*"],
            conditions={"StringLike": {"cloudwatch:namespace": ["AWS/SageMaker", "/aws/sagemaker/*"]}},
        )
    )
    acknowledge_resources(role, ["*"], "cloudwatch:PutMetricData is an action on no resource; it has a namespace.")


def _log_group_arn(role: iam.Role, name: str) -> str:
    return Stack.of(role).format_arn(
        service="logs", resource="log-group", resource_name=name, arn_format=ArnFormat.COLON_RESOURCE_NAME
    )
