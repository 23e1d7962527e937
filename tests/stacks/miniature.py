"""A repository in miniature: a real workload.toml, an artifact as a build leaves it, and stacks/app.py's stack of both.

It needs no build, no AWS account and no network.
"""

import gzip
import json
import re
import tarfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Annotations, Match, Template

from stacks.app import add_stacks
from stacks.context import Options
from tests.builders import an_artifact
from tests.conftest import without_objectives_of_targets
from tests.stacks.templates import make_app
from workloads import (
    ROOT,
    Autoscaling,
    Candidate,
    EcsServiceHosting,
    Provenance,
    Recommendation,
    SageMakerEndpointHosting,
    WorkloadFolder,
    artifact_file,
    file_sha256,
)

OTHER_SHA256 = "f" * 64


class Synthesis:
    def __init__(self, app: App, stack: Stack) -> None:
        self.app = app
        self.stack = stack

    @cached_property
    def template(self) -> Template:
        return Template.from_stack(self.stack)

    @cached_property
    def json(self) -> dict[str, Any]:
        return dict(self.template.to_json())

    def warnings(self) -> list[str]:
        messages = Annotations.from_stack(self.stack).find_warning("*", Match.any_value())
        return [str(message.entry.data) for message in messages]

    def notes(self, id: str) -> list[str]:
        """Returns what is said as information under this id."""
        found = Annotations.from_stack(self.stack).find_info("*", Match.string_like_regexp(f".*{id}"))
        return [str(message.entry.data).replace(f" [ack: {id}]", "") for message in found]

    def of_type(self, resource_type: str) -> dict[str, dict[str, Any]]:
        """Returns the resources of this type by logical id."""
        return {name: item for name, item in self.json["Resources"].items() if item["Type"] == resource_type}

    def only(self, resource_type: str) -> dict[str, Any]:
        """Returns the properties of the one resource of this type."""
        (resource,) = self.of_type(resource_type).values()
        return dict(resource["Properties"])


@dataclass(frozen=True)
class Repository:
    """A root folder for `add_stacks` with one workload, and ways to change what is in it."""

    root: Path
    workload: str = "spellcheck"

    @property
    def workload_file(self) -> Path:
        return self.root / "workloads" / self.workload / "workload.toml"

    @property
    def recommendation_file(self) -> Path:
        return self.workload_file.with_name("recommendation.json")

    @property
    def archive(self) -> Path:
        """The archive of the hosted target."""
        return self.artifact_file(self.folder.workload.hosting.target).with_name("model.tar.gz")

    @property
    def folder(self) -> WorkloadFolder:
        return WorkloadFolder(self.workload_file.parent)

    def artifact_file(self, target: str) -> Path:
        return artifact_file(self.root, self.workload, target)

    def host(self, target: str = "cpu", **keys: object) -> None:
        """Replaces [hosting], the last table of the file, by an endpoint on `target`, which is built if it is not.

        `instance_types` become the target's own.
        """
        types = keys.pop("instance_types", None)
        before = self.workload_file.read_text("utf-8").partition("[hosting]")[0]
        table = {"kind": "sagemaker-endpoint", "target": target, **keys}
        self.workload_file.write_text(f"{before}\n[hosting]\n{_lines(table)}", "utf-8")
        if isinstance(types, list):
            self.instance_types(target, *types)
        if not self.artifact_file(target).exists():
            self.build(target)

    def change_hosting(self, **keys: object) -> None:
        """Changes keys of [hosting] and keeps the others. A new target is built."""
        before, _, table = self.workload_file.read_text("utf-8").partition("[hosting]")
        kept = [line for line in table.splitlines() if line.strip() and line.split(" ")[0] not in keys]
        self.workload_file.write_text("\n".join([before + "[hosting]", *kept, _lines(keys)]), "utf-8")
        if "target" in keys:
            self.build(str(keys["target"]))

    def instance_types(self, target: str, *types: str) -> None:
        pattern = rf"(?ms)(^\[targets\.{target}\].*?^instance_types = ).*?$"
        text = re.sub(pattern, rf"\g<1>{_toml(list(types))}", self.workload_file.read_text("utf-8"), count=1)
        self.workload_file.write_text(text, "utf-8")

    def build(self, target: str, **changes: object) -> None:
        """Leaves an artifact as a finished build of `target` does, but for `changes`."""
        folder = self.folder
        built_for = folder.target(folder.variant(target).target)
        file = self.artifact_file(target)
        archive = file.with_name("model.tar.gz")
        archive.parent.mkdir(parents=True, exist_ok=True)
        with gzip.GzipFile(archive, "wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
            tar.addfile(tarfile.TarInfo(f"{self.workload}/{target}"))
        values: dict[str, object] = {
            "workload": self.workload,
            "variant": target,
            "target": folder.variant(target).target,
            "runtime": built_for.runtime,
            "default_model": self.workload,
            "toolchain": {"compute_capability": "7.5, 8.6"} if built_for.runtime == "tensorrt" else {},
            "archive_sha256": file_sha256(archive),
            "archive_bytes": archive.stat().st_size,
        }
        an_artifact(**{**values, **changes}).write_json(file)

    def recommend(self, recommended: Candidate | None, **keys: object) -> None:
        provenance = Provenance(
            measured_on="sagemaker",
            machine="ml.c5.2xlarge",
            job_name="spellcheck-1",
            job_arn="arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/spellcheck-1",
            traffic="production",
            percentile="P99",
            measured_at="2026-11-20T12:00:00Z",
            region="us-east-1",
            run="runs/spellcheck-1",
        )
        values: dict[str, Any] = {
            "workload": self.workload,
            "target": self.folder.workload.hosting.target,
            "archive_sha256": file_sha256(self.archive),
            "objective": self.folder.workload.latency_objective,
            "recommended": recommended,
            "candidates": (recommended,) if recommended else (),
            "provenance": provenance.model_copy(update=dict(keys.pop("provenance", {}))),  # type: ignore[call-overload]
        }
        Recommendation(**{**values, **keys}).write_json(self.recommendation_file)

    def app(self, environment: Environment | None = None, options: Options | None = None) -> App:
        app = make_app(self.root / "cdk.out", cdk_context())
        add_stacks(app, self.root, environment, options)
        return app

    def synthesise(self, environment: Environment | None = None, options: Options | None = None) -> Synthesis:
        return synthesis_of(self.app(environment, options), self.folder.workload.stack_name)


def synthesis_of(app: App, stack_name: str) -> Synthesis:
    stack = app.node.find_child(stack_name)
    assert isinstance(stack, Stack)
    return Synthesis(app, stack)


def kinds(synthesis: Synthesis) -> Counter[str]:
    """Counts the template's resources by their type."""
    return Counter(str(resource["Type"]) for resource in synthesis.json["Resources"].values())


def cdk_context() -> Mapping[str, Any]:
    """Returns what the CDK CLI hands to the app, without which a template would not be the one that is deployed."""
    return dict(json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"])


def as_committed(root: Path, workload: str) -> Repository:
    """Returns a workload with the hosted target built, and with [hosting] as it is."""
    repository = _copy(root, workload)
    repository.build(repository.folder.workload.hosting.target)
    return repository


def make_repository(root: Path, workload: str = "spellcheck") -> Repository:
    """Returns a workload on an endpoint, with `cpu` built and hosted and nothing optional in [hosting].

    The objective is that of production.
    """
    repository = _copy(root, workload)
    repository.host()
    return repository


def make_ec2_repository(root: Path, workload: str, target: str = "inf1") -> Repository:
    """Returns a workload hosted as its workload.toml says, but on `target`, which is built."""
    repository = _copy(root, workload)
    repository.change_hosting(target=target)
    return repository


def _copy(root: Path, workload: str) -> Repository:
    repository = Repository(root, workload)
    repository.workload_file.parent.mkdir(parents=True)
    toml = (ROOT / "workloads" / workload / "workload.toml").read_text("utf-8")
    repository.workload_file.write_text(without_objectives_of_targets(toml), "utf-8")
    return repository


def _lines(table: Mapping[str, object]) -> str:
    return "".join(f"{key} = {_toml(value)}\n" for key, value in table.items())


def _toml(value: object) -> str:
    """Returns an inline table, an array or a plain value."""
    match value:
        case dict():
            return "{ " + ", ".join(f"{key} = {_toml(item)}" for key, item in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(_toml, value)) + "]"
        case _:
            return json.dumps(value)


def candidate(**keys: object) -> Candidate:
    autoscaling = Autoscaling(min_capacity=2, max_capacity=7, target_invocations_per_instance=3210.5)
    values: dict[str, Any] = {
        "instance_type": "ml.c5.2xlarge",
        "environment": {"OMP_NUM_THREADS": "1"},
        "max_invocations_per_minute": 6421.0,
        "instance_count": 3,
        "cost_per_hour_usd": 1.224,
        "autoscaling": autoscaling,
        "meets_objective": True,
        "reason": "the cheapest that meets the objective",
    }
    return Candidate(**{**values, **keys})


def service_candidate(**keys: object) -> Candidate:
    scaling = Autoscaling(min_capacity=3, max_capacity=12, target_invocations_per_instance=98_765.4)
    measured = {"max_invocations_per_minute": 200_000.0, "instance_count": 6, "autoscaling": scaling}
    return candidate(**{"instance_type": "inf1.6xlarge", "environment": {}, **measured, **keys})


def recommend_for_production(repository: Repository) -> None:
    """Writes a recommendation on the first instance type of the hosted target. A batch has none."""
    workload = repository.folder.workload
    match workload.hosting:
        case SageMakerEndpointHosting():
            repository.recommend(candidate(instance_type=workload.instance_types[0]))
        case EcsServiceHosting():
            repository.recommend(service_candidate(instance_type=workload.instance_types[0]))
