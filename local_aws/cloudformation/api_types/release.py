"""Builds and pipelines. moto keeps them and runs none."""

from local_aws.cloudformation.api_type import ApiType, Properties


def _pipeline(properties: Properties, _region: str) -> Properties:
    """A restart on update is CloudFormation's own doing, and nothing runs here that could be restarted."""
    return {key: value for key, value in properties.items() if key != "RestartExecutionOnUpdate"}


RELEASE = (
    ApiType(
        name="AWS::CodeBuild::Project",
        service="codebuild",
        create="CreateProject",
        update="UpdateProject",
        delete="DeleteProject",
        ref="request.name",
        attributes={"Arn": "answer.project.arn"},
        keys={"name": "request.name"},
        named_by="Name",
    ),
    ApiType(
        name="AWS::CodePipeline::Pipeline",
        service="codepipeline",
        create="CreatePipeline",
        update="UpdatePipeline",
        delete="DeletePipeline",
        ref="request.pipeline.name",
        attributes={"Version": "to_string(answer.pipeline.version)"},
        keys={"name": "request.pipeline.name"},
        named_by="Name",
        within="pipeline",
        prepare=_pipeline,
    ),
)
