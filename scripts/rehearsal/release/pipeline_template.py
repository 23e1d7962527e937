"""Reads a synthesised pipeline template: stages, actions and CodeBuild projects. Pure.

References to the stack that CloudFormation made are resolved. An action type, function or build specification key that
the rehearsal does not support is an error.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads import UsageError

PIPELINE, PROJECT = "AWS::CodePipeline::Pipeline", "AWS::CodeBuild::Project"
MAX_ACTIONS = 50
"""CodePipeline's limit for a stage. Source: https://docs.aws.amazon.com/codepipeline/latest/userguide/limits.html"""
PROVIDERS = {"CodeStarSourceConnection", "CodeBuild", "CloudFormation"}
PHASES = ("install", "build")
PHASE_KEYS = {"commands", "runtime-versions"}
BUILD_SPEC_KEYS = {
    "buildspec": {"version", "env", "phases", "artifacts", "cache"},
    "env": {"git-credential-helper"},
    "phases": set(PHASES),
    "cache": {"paths"},
    "artifacts": {"base-directory", "files", "secondary-artifacts"},
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    """An action. `inputs` and `outputs` are names of artifacts, the primary input first."""

    stage: str
    name: str
    run_order: int
    provider: str
    configuration: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    role_arn: str
    namespace: str | None

    @property
    def title(self) -> str:
        return f"{self.stage}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """A CodeBuild project. `cache` is BUCKET/PREFIX, `spec` its build specification."""

    name: str
    role_arn: str
    privileged: bool
    variables: Mapping[str, str]
    cache: str | None
    timeout_minutes: int
    spec: Mapping[str, Any] = field(repr=False)

    @property
    def has_git_credentials(self) -> bool:
        return _text(self.spec.get("env", {}).get("git-credential-helper", False)) in {"true", "yes"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    """A pipeline. `actions` are in the order in which they run; `projects` are by name."""

    role_arn: str
    bucket: str
    stages: tuple[str, ...]
    actions: tuple[Action, ...]
    projects: Mapping[str, Project]

    def action(self, stage: str, name: str) -> Action:
        (action,) = (each for each in self.actions if (each.stage, each.name) == (stage, name))
        return action


def read_pipeline(template: Mapping[str, Any], deployed: Mapping[str, str]) -> Pipeline:
    """Reads the pipeline. `deployed` has the values of references, by NAME for `Ref` and NAME.ATTRIBUTE for attributes.

    Raises `UsageError` for what the rehearsal does not support.
    """
    resources = template["Resources"]
    (pipeline,) = (each for each in resources.values() if each["Type"] == PIPELINE)
    properties = _resolved(pipeline["Properties"], deployed)
    projects = [
        _project(deployed[name], _resolved(each["Properties"], deployed))
        for name, each in resources.items()
        if each["Type"] == PROJECT
    ]
    return Pipeline(
        role_arn=properties["RoleArn"],
        bucket=properties["ArtifactStore"]["Location"],
        stages=tuple(stage["Name"] for stage in properties["Stages"]),
        actions=tuple(_actions(properties["Stages"])),
        projects={project.name: project for project in projects},
    )


def _resolved(node: Any, deployed: Mapping[str, str]) -> Any:
    match node:
        case {"Ref": str(name)} if len(node) == 1:
            return _value(name, deployed)
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return _value(f"{name}.{attribute}", deployed)
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(str(_resolved(part, deployed)) for part in parts)
        case Mapping() if len(node) == 1 and next(iter(node)).startswith("Fn::"):
            raise UsageError(f"The rehearsal does not support {next(iter(node))}: {node}.")
        case Mapping():
            return {key: _resolved(value, deployed) for key, value in node.items()}
        case list():
            return [_resolved(item, deployed) for item in node]
    return node


def _value(reference: str, deployed: Mapping[str, str]) -> str:
    if reference not in deployed:
        raise UsageError(f"{reference}: the deployed stack lacks it, or the rehearsal does not support this attribute.")
    return deployed[reference]


def _actions(stages: Sequence[Mapping[str, Any]]) -> Iterator[Action]:
    for stage in stages:
        if len(stage["Actions"]) > MAX_ACTIONS:
            raise UsageError(f"Stage {stage['Name']} has {len(stage['Actions'])} actions. Allowed: {MAX_ACTIONS}.")
        for action in sorted(stage["Actions"], key=lambda each: (each["RunOrder"], each["Name"])):
            provider = action["ActionTypeId"]["Provider"]
            if provider not in PROVIDERS:
                raise UsageError(f"{stage['Name']}/{action['Name']}: the rehearsal does not support {provider}.")
            configuration = {key: _text(value) for key, value in action["Configuration"].items()}
            primary = configuration.get("PrimarySource")
            inputs = [each["Name"] for each in action.get("InputArtifacts", ())]
            yield Action(
                stage=stage["Name"],
                name=action["Name"],
                run_order=action["RunOrder"],
                provider=provider,
                configuration=configuration,
                inputs=tuple(sorted(inputs, key=lambda name: name != primary)),
                outputs=tuple(each["Name"] for each in action.get("OutputArtifacts", ())),
                role_arn=action["RoleArn"],
                namespace=action.get("Namespace"),
            )


def _project(name: str, properties: Mapping[str, Any]) -> Project:
    environment = properties["Environment"]
    cache = properties.get("Cache", {"Type": "NO_CACHE"})
    return Project(
        name=name,
        role_arn=properties["ServiceRole"],
        privileged=_text(environment.get("PrivilegedMode", False)) == "true",
        variables=_plain_variables(name, environment.get("EnvironmentVariables", ())),
        cache=cache["Location"] if cache["Type"] == "S3" else None,
        timeout_minutes=int(properties.get("TimeoutInMinutes", 60)),
        spec=read_build_spec(name, properties["Source"]["BuildSpec"]),
    )


def action_variables(action: Action) -> dict[str, str]:
    """Returns an action's variables of the build, with the pipeline's variables unresolved."""
    return _plain_variables(action.name, json.loads(action.configuration.get("EnvironmentVariables", "[]")))


def _plain_variables(where: str, given: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for each in given:
        variable = {key.lower(): value for key, value in each.items()}
        if variable.get("type", "PLAINTEXT") != "PLAINTEXT":
            raise UsageError(f"{where}: {variable['name']}: the rehearsal does not support {variable['type']}.")
        variables[variable["name"]] = str(variable["value"])
    return variables


def read_build_spec(where: str, text: str) -> dict[str, Any]:
    """Returns a build specification. Raises `UsageError` for a key that the rehearsal does not support."""
    document: dict[str, Any] = json.loads(text)
    phases = document.get("phases", {})
    parts = [("buildspec", document), *((part, document.get(part, {})) for part in BUILD_SPEC_KEYS)]
    parts += [(f"phases.{name}", phase) for name, phase in phases.items()]
    for part, given in parts:
        if unknown := sorted(set(given) - BUILD_SPEC_KEYS.get(part, PHASE_KEYS)):
            raise UsageError(f"{where}: buildspec: {part}: the rehearsal does not support {', '.join(unknown)}.")
    return document


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
