"""A repository in miniature: the real workload.toml, an artifact as a build leaves it, app.py's stack.

Nothing here needs a build, an AWS account or a network.
"""

import gzip
import json
import re
import shutil
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Annotations, Match, Template

from app import add_stacks
from stacks.context import Options
from tests.artifacts import an_artifact
from workloads import (
    ROOT,
    Autoscaling,
    Candidate,
    Provenance,
    Recommendation,
    WorkloadFolder,
    artifact_file,
    file_sha256,
)

OTHER_SHA256 = "f" * 64


@dataclass(frozen=True)
class Repository:
    """A root folder for `add_stacks` with one workload, and ways to change what lies in it."""

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
        """Of the hosted target."""
        return self.artifact_file(self.folder.workload.hosting.target).with_name("model.tar.gz")

    @property
    def folder(self) -> WorkloadFolder:
        return WorkloadFolder(self.workload_file.parent)

    def artifact_file(self, target: str) -> Path:
        return artifact_file(self.root, self.workload, target)

    def host(self, target: str = "cpu", **keys: object) -> None:
        """Rewrite [hosting], the last table of the file, and build its target; `instance_types` are those of it."""
        types = keys.pop("instance_types", None)
        table = {"kind": "sagemaker-endpoint", "target": target, **keys}
        before = self.workload_file.read_text("utf-8").partition("[hosting]")[0]
        if types is not None:
            before = re.sub(
                rf"(?ms)(^\[targets\.{target}\].*?^instance_types = ).*?$", rf"\g<1>{toml(types)}", before, count=1
            )
        lines = [f"{key} = {toml(value)}" for key, value in table.items()]
        self.workload_file.write_text("\n".join([before, "[hosting]", *lines, ""]), "utf-8")
        if not self.artifact_file(target).exists():
            self.build(target)

    def build(self, target: str, **changes: object) -> None:
        """Leave an artifact as a finished build of `target` does, but for `changes`."""
        write_artifact(self, target, **changes)

    def recommend(self, recommended: Candidate | None, **keys: object) -> None:
        write_recommendation(self, recommended, **keys)

    def synthesise(self, environment: Environment | None = None, options: Options | None = None) -> "Synthesis":
        app = App(outdir=str(self.root / "cdk.out"), context=cdk_context())
        add_stacks(app, self.root, environment, options)
        stack = app.node.find_child(self.folder.workload.stack_name)
        assert isinstance(stack, Stack)
        return Synthesis(app, stack)


class Synthesis:
    def __init__(self, app: App, stack: Stack) -> None:
        self.app = app
        self.stack = stack
        self.template = Template.from_stack(stack)
        self.json: dict[str, Any] = dict(self.template.to_json())

    def warnings(self) -> list[str]:
        found = Annotations.from_stack(self.stack).find_warning("*", Match.any_value())
        return [str(message.entry.data) for message in found]

    def only(self, resource_type: str) -> dict[str, Any]:
        """The one resource of this type."""
        (resource,) = (item for item in self.json["Resources"].values() if item["Type"] == resource_type)
        return dict(resource["Properties"])


def cdk_context() -> Mapping[str, Any]:
    """What the CDK CLI hands to the app: without it a template in a test would not be the one deployed."""
    return dict(json.loads((ROOT / "cdk.json").read_text("utf-8"))["context"])


def make_repository(root: Path, workload: str = "spellcheck") -> Repository:
    """With `cpu` as the hosted target, built, and nothing optional in [hosting]."""
    repository = _copied(root, workload)
    repository.host()
    return repository


def as_committed(root: Path, workload: str) -> Repository:
    """With the hosted target built, and [hosting] as it is."""
    repository = _copied(root, workload)
    repository.build(repository.folder.workload.hosting.target)
    return repository


def _copied(root: Path, workload: str) -> Repository:
    repository = Repository(root, workload)
    repository.workload_file.parent.mkdir(parents=True)
    shutil.copy(ROOT / "workloads" / workload / "workload.toml", repository.workload_file)
    return repository


def toml(value: object) -> str:
    """As an inline table, an array or a plain value."""
    match value:
        case dict():
            return "{ " + ", ".join(f"{key} = {toml(item)}" for key, item in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(toml, value)) + "]"
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


def write_recommendation(repository: Repository, recommended: Candidate | None, **keys: object) -> None:
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
        "workload": repository.workload,
        "target": repository.folder.workload.hosting.target,
        "archive_sha256": file_sha256(repository.archive),
        "objective": repository.folder.workload.latency_objective,
        "recommended": recommended,
        "candidates": (recommended,) if recommended else (),
        "provenance": provenance.model_copy(update=dict(keys.pop("provenance", {}))),  # type: ignore[call-overload]
    }
    Recommendation(**{**values, **keys}).write_json(repository.recommendation_file)


def write_artifact(repository: Repository, target: str, **changes: object) -> None:
    folder = repository.folder
    built_for = folder.target(folder.variant(target).target)
    file = repository.artifact_file(target)
    archive = file.with_name("model.tar.gz")
    archive.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(archive, "wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(f"{repository.workload}/{target}"))
    known = {"compute_capability": "7.5, 8.6"} if built_for.runtime == "tensorrt" else {}
    values: dict[str, object] = {
        "workload": repository.workload,
        "variant": target,
        "target": folder.variant(target).target,
        "runtime": built_for.runtime,
        "default_model": repository.workload,
        "toolchain": known,
        "archive_sha256": file_sha256(archive),
        "archive_bytes": archive.stat().st_size,
    }
    an_artifact(**{**values, **changes}).write_json(file)
