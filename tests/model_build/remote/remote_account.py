"""A miniature repository whose workload has a target for every machine, and a fake account to build it in."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.payloads import tar_gz
from model_build.remote.request import BuildSite
from tests.builders import an_artifact
from workloads import ROOT, ModelArtifact

TARGETS = """
[targets.gpu]
runtime = "tensorrt"
precision = "fp16"
instance_types = ["ml.g4dn.2xlarge", "ml.g5.xlarge"]

[targets.inf1]
runtime = "neuron"
instance_types = ["inf1.xlarge"]

[targets.inf2]
runtime = "neuronx"
instance_types = ["ml.inf2.xlarge"]

[targets.traced]
runtime = "torchscript"

[variants.gpu-plain]
target = "gpu"
serving = { dynamic_batching = false }

[serving]
"""
ROLE = "arn:aws:iam::123456789012:role/builder"


def miniature(root: Path) -> Path:
    """Returns spellcheck with more targets, a checkpoint of two small files and the files that travel with it."""
    folder = root / "workloads" / "spellcheck"
    (folder / "checkpoint").mkdir(parents=True)
    (folder / "checkpoint" / "config.json").write_text("{}")
    (folder / "checkpoint" / "model.safetensors").write_bytes(b"weights")
    toml = (ROOT / "workloads" / "spellcheck" / "workload.toml").read_text("utf-8")
    (folder / "workload.toml").write_text(toml.replace("\n[serving]\n", TARGETS, 1), "utf-8")
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "train.pyc").write_bytes(b"old")
    for name in ("workloads/folder.py", "model_build/plan.py", "containers/engine.py", "stacks/stack.py"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\n")
    (root / "cdk.json").write_text("{}\n")
    (root / "pyproject.toml").write_text("[project]\n")
    (root / "requirements").mkdir()
    for lock in ("build", "modelopt", "torch-cpu", "uv"):
        (root / "requirements" / f"{lock}.txt").write_text("a==1\n")
    return root


def site(**changes: Any) -> BuildSite:
    return BuildSite(
        **{"role_arn": ROLE, "bucket": "bucket", "region": "us-east-1", "stamp": "20261121-034500"} | changes
    )


def built(variant: str, files: Mapping[str, bytes], **changes: Any) -> dict[str, bytes]:
    """Returns a job's output: artifact.json and its archive."""
    packed = tar_gz(files)
    facts = {
        "variant": variant,
        "target": variant,
        "archive_sha256": hashlib.sha256(packed).hexdigest(),
        "archive_bytes": len(packed),
    }
    artifact: ModelArtifact = an_artifact(**(facts | changes))
    return {"artifact.json": artifact.model_dump_json().encode(), "model.tar.gz": packed}


class FakeAccount(SageMakerAccount):
    """An S3 in memory and jobs that take one status after another; the last one stays.

    `on_describe` is called before each description and may raise.
    """

    def __init__(
        self,
        outputs: Mapping[str, bytes] | None = None,
        *,
        statuses: Sequence[str] = ("InProgress", "Completed"),
        on_describe: Callable[[], None] = lambda: None,
        refusals: Mapping[str, Exception] | None = None,
        **described: Any,
    ) -> None:
        super().__init__(region="us-east-1")
        self.objects: dict[str, bytes] = {}
        self.jobs: dict[str, Mapping[str, Any]] = {}
        """The requests by name."""
        self.hurried = False
        self.stopped: list[str] = []
        self.log: list[str] = []
        self._refusals = refusals or {}
        self._outputs = outputs or {}
        self._statuses = statuses
        self._upcoming: dict[str, Iterator[str]] = {}
        self._status: dict[str, str] = {}
        self._on_describe = on_describe
        self._described = described

    def default_bucket(self) -> str:
        return "sagemaker-us-east-1-123456789012"

    def stop_retrying(self) -> None:
        self.hurried = True

    def upload_file(self, url: str, file: Path, kms_key: str | None = None) -> None:
        self.objects[url] = file.read_bytes()

    def exists(self, url: str) -> bool:
        return url in self.objects

    def files(self, url: str) -> list[str]:
        return [name.removeprefix(f"{url}/") for name in self.objects if name.startswith(f"{url}/")]

    def download(self, url: str, file: Path) -> None:
        file.write_bytes(self.objects[url])

    def create_processing_job(self, request: Mapping[str, Any]) -> None:
        name = request["ProcessingJobName"]
        for part, refusal in self._refusals.items():
            if part in name:
                raise refusal
        self.jobs[name] = request
        self._upcoming[name] = iter(self._statuses)

    def describe_processing_job(self, name: str) -> Mapping[str, Any]:
        self._on_describe()
        status = self._status[name] = next(self._upcoming[name], self._status.get(name, ""))
        if status == "Completed":
            self._finish(self.jobs[name])
        now = datetime.now(UTC)
        return {"ProcessingJobStatus": status, "CreationTime": now, **self._described}

    def stop_processing_job(self, name: str) -> None:
        self.stopped.append(name)

    def log_end(self, group: str, lines: int, prefix: str | None = None) -> list[str]:
        return self.log[-lines:]

    def _finish(self, request: Mapping[str, Any]) -> None:
        """Puts the outputs where the job says; those named FAMILY:NAME only where that family built."""
        (output,) = request["ProcessingOutputConfig"]["Outputs"]
        url = output["S3Output"]["S3Uri"]
        for name, content in self._outputs.items():
            family, _, plain = name.rpartition(":")
            if url.endswith(family):
                self.objects[f"{url}/{plain}"] = content
