"""Changes the repository as the rehearsal's commits do. Each change has a sentence for the transcript."""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from scripts.rehearsal.release.sources import Repository
from workloads.own_images import PINS, TRITON_LOCKS, image_build

REPOSITORY = "team/transformers-in-production"
CONNECTION = "arn:aws:codeconnections:us-east-1:123456789012:connection/00000000-0000-0000-0000-000000000000"
ENDPOINTS = ("question_answering", "spellcheck", "text_classification")
ON_CPU = ("spellcheck", "text_classification")
QUICK_S = (20, 40)


def as_rehearsed(repository: Repository) -> Iterator[str]:
    """Makes a release of this machine's size of the repository. Yields what was changed."""
    repository.edit_json("cdk.json", lambda document: document["context"].update(_SOURCE))
    yield f"cdk.json: release-repository is {REPOSITORY}, release-connection an AWS CodeConnections connection"
    pins = {base: f"sha256:{hashlib.sha256(base.encode()).hexdigest()}" for base in sorted(_bases())}
    (repository.clone / "containers" / PINS).write_text(json.dumps({"digests": pins}, indent=2) + "\n", "utf-8")
    yield f"containers/{PINS}: made-up digests, because AWS's registries of base images are not here"
    for workload in ON_CPU:
        if 'target = "cpu"' not in _hosting(repository, workload):
            repository.edit(_file(workload), _replaced(r'(?m)^(\[hosting\](?:\n.+)*?\ntarget = )"[^"]+"', r'\1"cpu"'))
    yield 'spellcheck, text_classification: hosting.target = "cpu", because there is no GPU here'
    for workload in ENDPOINTS:
        repository.edit(_file(workload), _short_traffic)
        repository.edit(_file(workload), _modest_objective)
    yield f"endpoints: traffic of {sum(QUICK_S)} s; an objective of 5 s at 600 invocations/min: this machine is slower"


def reviewed(repository: Repository) -> Iterator[str]:
    """Does what a reviewer of proposals does, and what a rehearsal has to. Yields what was changed."""
    branches = repository.branches()
    for branch in branches:
        repository.merge(branch)
        yield f"merged {re.sub(r'-[0-9a-f]{12}$', '-…', branch)}"
    for workload in ENDPOINTS:
        repository.edit_json(_recommendation(workload), _as_on_sagemaker)
    yield 'their provenance.measured_on: "sagemaker", because production takes nothing that was measured elsewhere'


def _as_on_sagemaker(document: dict[str, Any]) -> None:
    document["provenance"]["measured_on"] = "sagemaker"


def recommendation_of_query_intent(repository: Repository, archive_sha256: str) -> str:
    """Writes the recommendation of the one workload that no step measures; returns what was written."""
    one = json.loads((repository.clone / _recommendation("question_answering")).read_text("utf-8"))
    text = (repository.clone / _file("query_intent")).read_text("utf-8")
    (target,) = re.findall(r'(?m)^\[hosting\](?:\n.+)*?\ntarget = "([^"]+)"', text)
    objective = {"percentile": "P99", "model_latency_ms": 10.0, "peak_invocations_per_minute": 960000}
    chosen = one["recommended"] | {"instance_type": "inf1.6xlarge", "instance_count": 2, "environment": {}}
    chosen |= {"variant": None}
    document = one | {
        "workload": "query_intent",
        "target": target,
        "archive_sha256": archive_sha256,
        "objective": one["objective"] | objective,
        "recommended": chosen,
        "candidates": [chosen],
    }
    file = repository.clone / _recommendation("query_intent")
    file.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
    return "query_intent: a recommendation of two instances, by hand, because no step measures an ECS service"


def _bases() -> set[str]:
    """Returns the images of AWS and NVIDIA that images of ours are made of."""
    builds = [image_build(kind) for kind in ("inf1", "inf2", *TRITON_LOCKS)]
    return {build.base for build in builds}


_SOURCE = {"release-repository": REPOSITORY, "release-connection": CONNECTION}


def _file(workload: str) -> str:
    return f"workloads/{workload}/workload.toml"


def _recommendation(workload: str) -> str:
    return f"workloads/{workload}/recommendation.json"


def _hosting(repository: Repository, workload: str) -> str:
    return (repository.clone / _file(workload)).read_text("utf-8").partition("[hosting]")[2]


def _replaced(pattern: str, by: str) -> Callable[[str], str]:
    return lambda text: re.sub(pattern, by, text, count=1)


def _short_traffic(text: str) -> str:
    first, last = QUICK_S
    phases = (
        "phases = [\n"
        f"  {{ initial_users = 1, spawn_rate_per_minute = 0, duration_s = {first} }},\n"
        f"  {{ initial_users = 2, spawn_rate_per_minute = 12, duration_s = {last} }},\n"
        "]\n"
        'stop = { flat_invocations = "Continue" }\n'
    )
    return re.sub(
        r"(\[traffic\.production\]\ntype = \"phases\"\n)phases = \[.*?\n\]\nstop = [^\n]*\n",
        rf"\1{phases}",
        text,
        flags=re.S,
    )


def _modest_objective(text: str) -> str:
    text = re.sub(r"(?m)^model_latency_ms = .*$", "model_latency_ms = 5000.0", text, count=1)
    text = re.sub(r"(?m)^peak_invocations_per_minute = .*$", "peak_invocations_per_minute = 600", text, count=1)
    return re.sub(r"(?m)^trough_invocations_per_minute = .*$", "trough_invocations_per_minute = 300", text, count=1)
