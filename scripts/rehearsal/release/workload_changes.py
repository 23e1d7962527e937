"""The changes that a rehearsal makes to its repository. Each yields a line for the transcript."""

import hashlib
import json
import re
from collections.abc import Iterator

from scripts.rehearsal.release.sources import Repository
from workloads.own_images import PINS, TRITON_LOCKS, image_build

REPOSITORY = "team/transformers-in-production"
CONNECTION = "arn:aws:codeconnections:us-east-1:123456789012:connection/00000000-0000-0000-0000-000000000000"
WORKLOADS = ("duplicates", "query_intent", "question_answering", "spellcheck", "text_classification")
MEASURED = ("query_intent", "question_answering", "spellcheck", "text_classification")
ON_GPU = ("spellcheck", "text_classification")
GPU_TYPES = ("ml.g4dn.xlarge", "ml.g5.xlarge")
NEWER_TRITON = "25.09"
"""Starts on no host of a job, so the release loads the endpoint itself."""
PHASES_S = (20, 40)
ENGINES = r"(?m)^(\[targets\.tensorrt\](?:\n.+)*?\ninstance_types = ).*$"
TARGET = r'(?m)^(\[hosting\](?:\n.+)*?\ntarget = )"([^"]+)"'
TRAFFIC = r"(?s)(\[traffic\.production\]\ntype = \"phases\"\n)phases = \[.*?\n\]\nstop = [^\n]*\n"
QUICK_PHASES = f"""phases = [
  {{ initial_users = 1, spawn_rate_per_minute = 0, duration_s = {PHASES_S[0]} }},
  {{ initial_users = 2, spawn_rate_per_minute = 12, duration_s = {PHASES_S[1]} }},
]
stop = {{ flat_invocations = "Continue" }}
"""
OBJECTIVE = {"model_latency_ms": "5000.0", "peak_invocations_per_minute": "600", "trough_invocations_per_minute": "300"}


def as_rehearsed(repository: Repository) -> Iterator[str]:
    """Makes a release that this machine can measure."""
    source = {"release-repository": REPOSITORY, "release-connection": CONNECTION}
    repository.edit_json("cdk.json", lambda document: document["context"].update(source))
    yield f"cdk.json: release-repository is {REPOSITORY}"
    bases = {image_build(kind).base for kind in ("inf1", "inf2", *TRITON_LOCKS)}
    pins = {base: f"sha256:{hashlib.sha256(base.encode()).hexdigest()}" for base in sorted(bases)}
    (repository.clone / "containers" / PINS).write_text(json.dumps({"digests": pins}, indent=2) + "\n", "utf-8")
    yield f"containers/{PINS}: invented digests, because the registries of base images are not available here"
    for workload in ON_GPU:
        repository.edit(_toml(workload), lambda text: re.sub(ENGINES, rf"\1{json.dumps(GPU_TYPES)}", text))
    yield f"{', '.join(ON_GPU)}: engines for {' and '.join(GPU_TYPES)}"
    newer = rf'\g<0>\ntriton_version = "{NEWER_TRITON}"'
    repository.edit(_toml("spellcheck"), lambda text: re.sub(rf"{TARGET}.*$", newer, text, count=1))
    yield f"spellcheck: hosting.triton_version = {NEWER_TRITON}, so that the release loads the endpoint itself"
    for workload in MEASURED:
        repository.edit(_toml(workload), modest)
    yield f"endpoints and the service: traffic of {sum(PHASES_S)} s, and an objective of 5 s at 600 invocations/min"


def reviewed(repository: Repository) -> Iterator[str]:
    """Merges the proposed recommendations, and marks them as measured on SageMaker, which production requires."""
    for branch in repository.branches():
        repository.merge(branch)
        yield f"merged {branch}"
    for workload in MEASURED:
        if (repository.clone / (name := _recommendation(workload))).exists():
            repository.edit_json(name, lambda document: document["provenance"].update(measured_on="sagemaker"))
    yield 'provenance.measured_on is "sagemaker", because production requires it'


def modest(text: str) -> str:
    """Returns workload.toml with short traffic and an objective for this machine."""
    text = re.sub(TRAFFIC, lambda match: match[1] + QUICK_PHASES, text)
    for key, value in OBJECTIVE.items():
        text = re.sub(rf"(?m)^{key} = .*$", f"{key} = {value}", text, count=1)
    return text


def _toml(workload: str) -> str:
    return f"workloads/{workload}/workload.toml"


def _recommendation(workload: str) -> str:
    return f"workloads/{workload}/recommendation.json"
