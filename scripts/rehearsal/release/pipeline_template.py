"""Reads a synthesised template: the pipeline's stages and actions, and the CodeBuild projects that they run. Pure.

What a template leaves open (`Ref`, `Fn::GetAtt`) is filled in from `Deployed`, the stack as CloudFormation made it. The
reader is strict: a type of action, a function or a key of a build specification that it does not know is an error,
because a rehearsal that skips what it does not know rehearses another pipeline.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from workloads import UsageError

PIPELINE, PROJECT = "AWS::CodePipeline::Pipeline", "AWS::CodeBuild::Project"
PROVIDERS = {"CodeStarSourceConnection", "CodeBuild", "CloudFormation"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    """A stack as it was deployed."""

    references: Mapping[str, str]
    """The values of `Ref`: physical ids by logical id, and the pseudo parameters."""
    attribute: Callable[[str, str], str]
    """Returns the value of `Fn::GetAtt` for a logical id and an attribute. Raises `UsageError` where it is unknown."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Action:
    stage: str
    name: str
    run_order: int
    provider: str
    configuration: Mapping[str, str]
    inputs: tuple[str, ...]
    """Names of artifacts, the primary one first."""
    outputs: tuple[str, ...]
    role_arn: str
    namespace: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputFiles:
    """The files that a build hands on as one artifact."""

    base_directory: str
    patterns: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildSpec:
    variables: Mapping[str, str]
    git_credential_helper: bool
    shell: str
    runtimes: Mapping[str, str]
    phases: Mapping[str, tuple[str, ...]]
    """Commands by phase, in the order in which phases run."""
    outputs: OutputFiles | None
    secondary: Mapping[str, OutputFiles]
    """By the name of the output artifact."""
    cached: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    name: str
    logical_id: str
    image: str
    role_arn: str
    privileged: bool
    variables: Mapping[str, str]
    cache: str | None
    """BUCKET/PREFIX, where the project keeps a cache."""
    timeout_minutes: int
    spec: BuildSpec = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    name: str
    role_arn: str
    bucket: str
    """Keeps the artifacts."""
    stages: tuple[str, ...]
    actions: tuple[Action, ...]
    """In the order in which they run; those that run at the same time by name."""
    projects: Mapping[str, Project]
    """By name."""

    def action(self, stage: str, name: str) -> Action:
        for action in self.actions:
            if (action.stage, action.name) == (stage, name):
                return action
        raise UsageError(f"The pipeline's stage {stage} has no action {name}.")


def read_pipeline(template: Mapping[str, Any], deployed: Deployed) -> Pipeline:
    """Raises `UsageError` for what is not understood, and for an action that no producer precedes."""
    found = {name: each for name, each in template["Resources"].items() if each["Type"] == PIPELINE}
    if len(found) != 1:
        raise UsageError(f"The template has {len(found)} resources of type {PIPELINE}, and one is needed.")
    ((logical_id, resource),) = found.items()
    properties = resolved(resource["Properties"], deployed)
    actions = tuple(_actions(properties["Stages"]))
    _check_order(actions)
    projects = [
        _project(logical, resolved(each["Properties"], deployed), deployed)
        for logical, each in template["Resources"].items()
        if each["Type"] == PROJECT
    ]
    return Pipeline(
        name=deployed.references[logical_id],
        role_arn=properties["RoleArn"],
        bucket=properties["ArtifactStore"]["Location"],
        stages=tuple(stage["Name"] for stage in properties["Stages"]),
        actions=actions,
        projects={project.name: project for project in projects},
    )


def resolved(node: Any, deployed: Deployed) -> Any:
    """Returns `node` with its functions replaced by their values."""
    match node:
        case {"Ref": str(name)} if len(node) == 1:
            if name not in deployed.references:
                raise UsageError(f"The template refers to {name}, which the deployed stack does not have.")
            return deployed.references[name]
        case {"Fn::GetAtt": [str(name), str(attribute)]}:
            return deployed.attribute(name, attribute)
        case {"Fn::Join": [str(separator), list(parts)]}:
            return separator.join(str(resolved(part, deployed)) for part in parts)
        case Mapping() if len(node) == 1 and next(iter(node)).startswith("Fn::"):
            raise UsageError(f"The template uses {next(iter(node))} where the rehearsal cannot follow it: {node}.")
        case Mapping():
            return {key: resolved(value, deployed) for key, value in node.items()}
        case list():
            return [resolved(item, deployed) for item in node]
    return node


def _actions(stages: Sequence[Mapping[str, Any]]) -> Iterator[Action]:
    for stage in stages:
        for action in sorted(stage["Actions"], key=lambda each: (each["RunOrder"], each["Name"])):
            provider = action["ActionTypeId"]["Provider"]
            if provider not in PROVIDERS:
                raise UsageError(f"{stage['Name']}/{action['Name']}: is of {provider}, which is not rehearsed.")
            configuration = {key: _text(value) for key, value in action["Configuration"].items()}
            yield Action(
                stage=stage["Name"],
                name=action["Name"],
                run_order=action["RunOrder"],
                provider=provider,
                configuration=configuration,
                inputs=_primary_first(action, configuration.get("PrimarySource")),
                outputs=tuple(each["Name"] for each in action.get("OutputArtifacts", ())),
                role_arn=action["RoleArn"],
                namespace=action.get("Namespace"),
            )


def _primary_first(action: Mapping[str, Any], primary: str | None) -> tuple[str, ...]:
    names = [each["Name"] for each in action.get("InputArtifacts", ())]
    if primary is None:
        return tuple(names)
    if primary not in names:
        raise UsageError(f"{action['Name']}: its PrimarySource {primary} is none of its inputs {', '.join(names)}.")
    return (primary, *(name for name in names if name != primary))


def _check_order(actions: Sequence[Action]) -> None:
    """Refuses an input that no earlier action makes, as CodePipeline does."""
    made: dict[str, tuple[str, int]] = {}
    for action in actions:
        for name in action.inputs:
            at = made.get(name)
            if at is None or at == (action.stage, action.run_order):
                raise UsageError(
                    f"{action.stage}/{action.name}: takes the artifact {name}, which nothing before it makes."
                )
        made |= dict.fromkeys(action.outputs, (action.stage, action.run_order))


def _project(logical_id: str, properties: Mapping[str, Any], deployed: Deployed) -> Project:
    environment = properties["Environment"]
    cache = properties.get("Cache", {"Type": "NO_CACHE"})
    if cache["Type"] not in {"NO_CACHE", "S3", "LOCAL"}:
        raise UsageError(f"{logical_id}: Cache.Type: is {cache['Type']}, which is not rehearsed.")
    return Project(
        name=deployed.references[logical_id],
        logical_id=logical_id,
        image=environment["Image"],
        role_arn=properties["ServiceRole"],
        privileged=_text(environment.get("PrivilegedMode", False)) == "true",
        variables=_plain_variables(logical_id, environment.get("EnvironmentVariables", ())),
        cache=cache["Location"] if cache["Type"] == "S3" else None,  # a local cache may always be empty
        timeout_minutes=int(properties.get("TimeoutInMinutes", 60)),
        spec=read_build_spec(logical_id, properties["Source"]["BuildSpec"]),
    )


def action_variables(action: Action) -> dict[str, str]:
    """Returns an action's own variables of the build, with the pipeline's variables still unresolved."""
    given = json.loads(action.configuration.get("EnvironmentVariables", "[]"))
    return _plain_variables(action.name, given)


def _plain_variables(where: str, given: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for each in given:
        variable = {key.lower(): value for key, value in each.items()}
        if variable.get("type", "PLAINTEXT") != "PLAINTEXT":
            raise UsageError(f"{where}: {variable['name']}: is of type {variable['type']}, which is not rehearsed.")
        variables[variable["name"]] = str(variable["value"])
    return variables


_PHASES = ("install", "pre_build", "build", "post_build")
_KNOWN = {
    "": {"version", "env", "phases", "artifacts", "cache"},
    "env": {"variables", "git-credential-helper", "shell"},
    "phases": set(_PHASES),
    "cache": {"paths"},
}


def read_build_spec(where: str, text: str) -> BuildSpec:
    """Raises `UsageError` for a key that the rehearsal would not obey."""
    document = json.loads(text)
    _only_known(where, "", document)
    for part in ("env", "phases", "cache"):
        _only_known(where, part, document.get(part, {}))
    if str(document["version"]) != "0.2":
        raise UsageError(f"{where}: buildspec.version: is {document['version']}, and 0.2 is rehearsed.")
    environment, phases = document.get("env", {}), document.get("phases", {})
    for name, phase in phases.items():
        _only(where, f"phases.{name}", phase, {"commands", "runtime-versions"})
    artifacts = dict(document.get("artifacts", {}))
    secondary = artifacts.pop("secondary-artifacts", {})
    return BuildSpec(
        variables={name: str(value) for name, value in environment.get("variables", {}).items()},
        git_credential_helper=_text(environment.get("git-credential-helper", False)) in {"true", "yes"},
        shell=environment.get("shell", "sh"),
        runtimes={name: str(value) for name, value in phases.get("install", {}).get("runtime-versions", {}).items()},
        phases={name: tuple(phases.get(name, {}).get("commands", ())) for name in _PHASES},
        outputs=_output_files(where, artifacts) if artifacts else None,
        secondary={name: _output_files(where, files) for name, files in secondary.items()},
        cached=tuple(document.get("cache", {}).get("paths", ())),
    )


def _output_files(where: str, given: Mapping[str, Any]) -> OutputFiles:
    _only(where, "artifacts", given, {"base-directory", "files", "name"})
    return OutputFiles(base_directory=given.get("base-directory", "."), patterns=tuple(given["files"]))


def _only_known(where: str, part: str, given: Mapping[str, Any]) -> None:
    _only(where, part or "the top", given, _KNOWN[part])


def _only(where: str, part: str, given: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(given) - known):
        raise UsageError(f"{where}: buildspec: {part} has {', '.join(unknown)}, which is not rehearsed.")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
