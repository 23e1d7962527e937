"""A release takes the workloads for TensorRT through, by its own scripts, on the stand-in for the GPU.

The GPU's own speed is not measured here, and neither is a role's policy: tests of the rehearsal itself check that.
"""

import re
from collections.abc import Iterator

import pytest

from tests.builders import known
from tests.local_aws.conftest import allow, make_role
from tests.repository_copy import RepositoryCopy, repository_copy
from tests.scripts.rehearsal import releases
from workloads import Recommendation

pytestmark = [pytest.mark.slow, pytest.mark.integration]

BY_JOB, BY_LOAD = ("text_classification", "trt-db-ig"), ("spellcheck", "tensorrt")
STACKS = {BY_JOB[0]: "TextClassificationStack", BY_LOAD[0]: "SpellcheckStack"}
IMAGES, TYPES = {BY_JOB: "triton-24.09-gpu", BY_LOAD: "triton-25.09-gpu"}, ("ml.g4dn.xlarge", "ml.g5.xlarge")
PHASES = """phases = [{ initial_users = 1, spawn_rate_per_minute = 0, duration_s = 20 }]
stop = { flat_invocations = "Continue" }
"""
EDITS = {
    r"(?m)(\[targets\.tensorrt\](?:\n.+)*?\ninstance_types = ).*": rf"\1{list(TYPES)}",
    r"(?s)(\[traffic\.production\]\ntype = \"phases\"\n).*?\n\n": rf"\1{PHASES}\n",
    r"(?m)^model_latency_ms = .*$": "model_latency_ms = 5000.0",
}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryCopy]:
    root = tmp_path_factory.mktemp("gpu") / "repository"
    with repository_copy(root, "scripts.rehearsal.account") as made:
        made.client("s3").create_bucket(Bucket=releases.BUCKET)
        for workload in STACKS:
            folder = root / "workloads" / workload
            releases.shorten_evaluation(made, workload)
            text = (folder / "workload.toml").read_text("utf-8")
            for old, new in EDITS.items():
                text = re.sub(old, new, text)
            (folder / "workload.toml").write_text(text, "utf-8")
        toml = root / "workloads" / BY_LOAD[0] / "workload.toml"
        newer = 'target = "tensorrt"\ntriton_version = "25.09"\n'  # starts on no host of a job
        toml.write_text(re.sub(r'(?m)^target = "tensorrt".*\n', newer, toml.read_text("utf-8")), "utf-8")
        for kind in IMAGES.values():
            releases.leave_image(made, kind)
        yield made


@pytest.fixture(scope="module", params=[BY_JOB, BY_LOAD], ids=lambda target: target[0])
def released(request: pytest.FixtureRequest, copy: RepositoryCopy) -> tuple[str, str]:
    """A workload that came through its gates."""
    workload, target = request.param
    role = make_role(copy.client("iam"), f"release-{workload}", allow("s3:*", "logs:*", "ecr:*"))
    releases.build(copy, workload, target, role)
    releases.script(copy, "parity_gate", workload, target)
    return workload, target


def test_its_artifact_has_engines_of_each_gpu(copy: RepositoryCopy, released: tuple[str, str]) -> None:
    artifact = releases.parity(copy, *released)
    assert artifact.toolchain["compute_capability"] == "7.5, 8.6"
    assert artifact.toolchain["gpu"] == "Tesla T4, NVIDIA A10G"
    assert "the GPU of ml.g5.xlarge, and trtexec of the image sagemaker-tritonserver:" in releases.stand_ins_log(copy)


def test_its_endpoint_answers_and_its_measurement_ends_in_a_recommendation(
    copy: RepositoryCopy, released: tuple[str, str]
) -> None:
    workload, target = released
    outputs = releases.deploy(copy, STACKS[workload], target)
    answers = releases.script(copy, "smoke_test", workload, outputs["EndpointName"]).splitlines()
    assert len(answers) == 3
    by_job = ("measure.sh", workload, outputs["ModelName"], outputs["RecommenderRoleArn"])
    by_load = ("measure_endpoint.sh", workload, outputs["EndpointName"], target)
    name, *arguments = by_load if released == BY_LOAD else by_job
    copy.measure("bash", f"scripts/release/{name}", *arguments)
    measured = Recommendation.from_json(copy.root / "runs" / "candidate" / "recommendation.json")
    chosen = known(measured.recommended).instance_type
    assert chosen in TYPES
    assert measured.archive_sha256 == releases.parity(copy, *released).archive_sha256
    assert f"the GPU of {chosen}, and TensorRT of its image: a stand-in" in releases.stand_ins_log(copy)
