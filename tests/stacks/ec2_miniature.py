"""A repository in miniature of a workload on EC2 instances: its real workload.toml, an artifact as a build leaves it.

Nothing here needs a build, an AWS account or a network; Inferentia's artifacts need no compiler of it.
"""

import gzip
import json
import re
import shutil
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aws_cdk import App, Environment, Stack

from app import add_stacks
from stacks.options import Options
from tests.artifacts import an_artifact
from tests.stacks.miniature import Synthesis, cdk_context
from workloads import (
    ROOT,
    Autoscaling,
    Candidate,
    LatencyObjective,
    Provenance,
    Recommendation,
    artifact_file,
    file_sha256,
    load_workload,
)

RUNTIMES = {"cpu": "onnxruntime", "inf1": "neuron", "inf2": "neuronx", "tensorrt": "tensorrt"}
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/ours:1"


@dataclass(frozen=True)
class Ec2Repository:
    root: Path
    workload: str

    @property
    def workload_file(self) -> Path:
        return self.root / "workloads" / self.workload / "workload.toml"

    @property
    def recommendation_file(self) -> Path:
        return self.workload_file.with_name("recommendation.json")

    def host(self, **keys: object) -> None:
        """Keys of [hosting], the last table of the file, beside those that it has."""
        text = self.workload_file.read_text("utf-8")
        before, _, table = text.partition("[hosting]")
        kept = [line for line in table.splitlines() if line.strip() and line.split(" ")[0] not in keys]
        added = [f"{key} = {_toml(value)}" for key, value in keys.items()]
        self.workload_file.write_text("\n".join([before + "[hosting]", *kept, *added, ""]), "utf-8")
        if "target" in keys:
            self.build(str(keys["target"]))

    def instance_types(self, target: str, *types: str) -> None:
        text = self.workload_file.read_text("utf-8")
        section = re.compile(rf"(?ms)^\[targets\.{target}\]$.*?(?=^\[)")
        own = section.search(text)
        assert own
        changed = re.sub(r"(?m)^instance_types = .*$", f"instance_types = {json.dumps(types)}", own[0])
        self.workload_file.write_text(text.replace(own[0], changed), "utf-8")

    def build(self, target: str, **changes: object) -> str:
        """Leaves an artifact for `target`; returns its archive's sha256."""
        file = artifact_file(self.root, self.workload, target)
        file.parent.mkdir(parents=True, exist_ok=True)
        archive = file.with_name("model.tar.gz")
        with gzip.GzipFile(archive, "wb", mtime=0) as stream, tarfile.open(fileobj=stream, mode="w") as tar:
            tar.addfile(tarfile.TarInfo(f"{target}.json"))
        made: dict[str, Any] = {
            "workload": self.workload,
            "variant": target,
            "target": target,
            "runtime": RUNTIMES[target],
            "archive_sha256": file_sha256(archive),
            "archive_bytes": archive.stat().st_size,
            "default_model": self.workload,
            **changes,
        }
        an_artifact(**made).write_json(file)
        return file_sha256(archive)

    def recommend(self, **keys: object) -> None:
        """Of a service: keys of the recommended candidate."""
        target = load_workload(self.workload, self.root / "workloads").workload.hosting.target
        file = artifact_file(self.root, self.workload, target)
        recommended = Candidate(
            **{  # type: ignore[arg-type]
                "instance_type": "inf1.6xlarge",
                "max_invocations_per_minute": 200_000.0,
                "instance_count": 6,
                "autoscaling": Autoscaling(min_capacity=2, max_capacity=12, target_invocations_per_instance=98_765.4),
                "meets_objective": True,
                "reason": "the cheapest that meets the objective",
                **keys,
            }
        )
        provenance = Provenance(
            measured_on="sagemaker",
            machine=recommended.instance_type,
            job_name="harness-1",
            job_arn="arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/harness-1",
            traffic="production",
            percentile="P99",
            measured_at="2026-11-20T12:00:00Z",
            region="us-east-1",
            run="runs/harness-1",
        )
        Recommendation(
            workload=self.workload,
            target=target,
            archive_sha256=file_sha256(file.with_name("model.tar.gz")),
            objective=LatencyObjective(percentile="P99", model_latency_ms=10.0, peak_invocations_per_minute=960_000),
            recommended=recommended,
            candidates=(recommended,),
            provenance=provenance,
        ).write_json(self.recommendation_file)

    def app(self, environment: Environment | None = None, options: Options | None = None) -> App:
        app = App(outdir=str(self.root / "cdk.out"), context=cdk_context())
        add_stacks(app, self.root, environment, options)
        return app

    def synthesise(self, environment: Environment | None = None, options: Options | None = None) -> Synthesis:
        app = self.app(environment, options)
        stack = app.node.find_child("".join(word.capitalize() for word in self.workload.split("_")) + "Stack")
        assert isinstance(stack, Stack)
        return Synthesis(app, stack)


def make_ec2_repository(root: Path, workload: str, target: str = "inf1") -> Ec2Repository:
    repository = Ec2Repository(root, workload)
    repository.workload_file.parent.mkdir(parents=True)
    shutil.copy(ROOT / "workloads" / workload / "workload.toml", repository.workload_file)
    repository.host(target=target)
    return repository


def _toml(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value)
