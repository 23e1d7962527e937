"""A template in miniature, in the shapes that CDK Pipelines writes, and a stack deployed from it."""

import json
from collections.abc import Sequence
from typing import Any

from scripts.rehearsal.release.pipeline_template import Pipeline, read_pipeline

ACCOUNT = "123456789012"
ROLES = ("Source", "Action", "Build", "Pipeline")


def source(output: str, **configuration: Any) -> dict[str, Any]:
    return {
        "Name": output,
        "ActionTypeId": {"Provider": "CodeStarSourceConnection"},
        "Configuration": {"BranchName": "main", **configuration},
        "OutputArtifacts": [{"Name": output}],
        "Namespace": f"{output}_NS",
        "RoleArn": {"Fn::GetAtt": ["SourceRole", "Arn"]},
        "RunOrder": 1,
    }


def build(
    name: str, order: int, inputs: Sequence[str], outputs: Sequence[str] = (), **configuration: Any
) -> dict[str, Any]:
    return {
        "Name": name,
        "ActionTypeId": {"Provider": "CodeBuild"},
        "Configuration": {"ProjectName": {"Ref": name}, **configuration},
        "InputArtifacts": [{"Name": each} for each in inputs],
        "OutputArtifacts": [{"Name": each} for each in outputs],
        "RoleArn": {"Fn::GetAtt": ["ActionRole", "Arn"]},
        "RunOrder": order,
    }


def project(spec: dict[str, Any], **properties: Any) -> dict[str, Any]:
    return {
        "Type": "AWS::CodeBuild::Project",
        "Properties": {
            "Environment": {"Image": "aws/codebuild/standard:7.0", "PrivilegedMode": False},
            "ServiceRole": {"Fn::GetAtt": ["BuildRole", "Arn"]},
            "Source": {"Type": "CODEPIPELINE", "BuildSpec": json.dumps({"version": "0.2", **spec})},
            **properties,
        },
    }


def commands(*given: str, phase: str = "build") -> dict[str, Any]:
    return {"phases": {phase: {"commands": list(given)}}}


def template(stages: dict[str, list[dict[str, Any]]], projects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    pipeline = {
        "RoleArn": {"Fn::GetAtt": ["PipelineRole", "Arn"]},
        "ArtifactStore": {"Location": {"Ref": "Artifacts"}},
        "Stages": [{"Name": name, "Actions": actions} for name, actions in stages.items()],
    }
    return {"Resources": {"Pipeline": {"Type": "AWS::CodePipeline::Pipeline", "Properties": pipeline}, **projects}}


def deployed(*projects: str) -> dict[str, str]:
    roles = {f"{name}Role.Arn": f"arn:aws:iam::{ACCOUNT}:role/{name}Role" for name in ROLES}
    return {name: name for name in ("Pipeline", *projects)} | {"Artifacts": "artifacts", **roles}


def pipeline(stages: dict[str, list[dict[str, Any]]], **projects: dict[str, Any]) -> Pipeline:
    return read_pipeline(template(stages, projects), deployed(*projects))
