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
from tests.artifacts import an_artifact
from workloads import (
    ROOT,
    Autoscaling,
    Candidate,
    LatencyObjective,
    Provenance,
    Recommendation,
    artifact_file,
    file_sha256,
)

OTHER_SHA256 = "f" * 64


@dataclass(frozen=True)
class Repository:
    """A root folder for `add_stacks`, with ways to change what lies in it."""

    root: Path

    @property
    def workload_file(self) -> Path:
        return self.root / "workloads/spellcheck/workload.toml"

    @property
    def recommendation_file(self) -> Path:
        return self.root / "workloads/spellcheck/recommendation.json"

    @property
    def archive(self) -> Path:
        return artifact_file(self.root, "spellcheck", "cpu").with_name("model.tar.gz")

    def host(self, **keys: object) -> None:
        """Rewrite [hosting], the last table of the file; `instance_types` are those of its target."""
        types = json.dumps(keys.pop("instance_types", ["ml.c5.xlarge"]))
        table = {"kind": "sagemaker-endpoint", "target": "cpu", **keys}
        lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
        before = self.workload_file.read_text("utf-8").partition("[hosting]")[0]
        before = re.sub("(?m)^instance_types = .*$", f"instance_types = {types}", before, count=1)  # cpu comes first
        self.workload_file.write_text("\n".join([before, "[hosting]", *lines, ""]), "utf-8")

    def recommend(self, recommended: Candidate | None, **keys: object) -> None:
        write_recommendation(self, recommended, **keys)

    def synthesise(self, environment: Environment | None = None) -> "Synthesis":
        app = App(outdir=str(self.root / "cdk.out"), context=cdk_context())
        add_stacks(app, self.root, environment)
        stack = app.node.find_child("SpellcheckStack")
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


def make_repository(root: Path) -> Repository:
    repository = Repository(root)
    repository.workload_file.parent.mkdir(parents=True)
    shutil.copy(ROOT / "workloads/spellcheck/workload.toml", repository.workload_file)
    repository.host()
    _write_artifact(repository)
    return repository


def candidate(**keys: object) -> Candidate:
    autoscaling = Autoscaling(min_capacity=2, max_capacity=7, target_invocations_per_instance=3210.5)
    values: dict[str, Any] = {
        "instance_type": "ml.c5.2xlarge",
        "environment": {"OMP_NUM_THREADS": "1"},
        "instance_count": 3,
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
        "workload": "spellcheck",
        "target": "cpu",
        "archive_sha256": file_sha256(repository.archive),
        "objective": LatencyObjective(percentile="P99", model_latency_ms=50.0, peak_invocations_per_minute=30_000),
        "recommended": recommended,
        "candidates": (recommended,) if recommended else (),
        "provenance": provenance.model_copy(update=dict(keys.pop("provenance", {}))),  # type: ignore[call-overload]
    }
    Recommendation(**{**values, **keys}).write_json(repository.recommendation_file)


def _write_artifact(repository: Repository) -> None:
    archive = repository.archive
    archive.parent.mkdir(parents=True)
    with gzip.GzipFile(archive, "wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("spellcheck/config.pbtxt"))
    made = an_artifact(archive_sha256=file_sha256(archive), archive_bytes=archive.stat().st_size)
    made.write_json(artifact_file(repository.root, "spellcheck", "cpu"))
