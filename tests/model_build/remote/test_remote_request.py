"""The processing jobs of a remote build: requests, machines and images, and refusals."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.validate import ParamValidator

from aws_api.processing_jobs import ProcessingJob
from aws_api.service_model import input_shape, shape_problems
from model_build.remote.request import driver_warnings, job_name, plan_remote, triton_image
from tests.builders import message_of
from tests.model_build.remote.remote_account import ROLE, site
from workloads import Unavailable, UsageError, WorkloadFolder, images, load_workload
from workloads.folder import with_settings

TRITON = "763104351884.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:24.09-py3"


def plan(folder: WorkloadFolder, variant: str, **changes: Any) -> tuple[ProcessingJob, ...]:
    return plan_remote(folder, variant, site(**changes))


def found_wrong(request: Mapping[str, Any]) -> list[str]:
    """Returns what botocore and, for enums, patterns and lengths, its service model say against a request."""
    shape = input_shape("sagemaker", "CreateProcessingJob")
    report = ParamValidator().validate(request, shape)
    return [*([report.generate_report()] if report.has_errors() else []), *shape_problems(shape, dict(request))]


def image(job: ProcessingJob) -> str:
    return str(job.request()["AppSpecification"]["ImageUri"])


@pytest.mark.parametrize("variant", ["cpu", "cpu-int8", "traced", "gpu", "gpu-plain", "inf1", "inf2"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kms_key": "arn:aws:kms:us-east-1:123456789012:key/k"},
        {"security_groups": ("sg-1",), "subnets": ("subnet-1", "subnet-2")},
    ],
    ids=["plain", "kms", "vpc"],
)
def test_sagemaker_accepts_every_request(folder: WorkloadFolder, variant: str, changes: dict[str, Any]) -> None:
    for job in plan(folder, variant, **changes):
        assert found_wrong(job.request()) == []


def test_a_tensorrt_target_is_built_on_each_of_its_gpus_in_the_image_that_serves_it(folder: WorkloadFolder) -> None:
    builds = plan(folder, "gpu")
    assert [job.instance_type for job in builds] == ["ml.g4dn.xlarge", "ml.g5.xlarge"]
    assert {image(job) for job in builds} == {TRITON}
    assert len({job.name for job in builds}) == 2
    assert len({job.output_url for job in builds}) == 2
    assert len({job.source_url for job in builds}) == 1
    assert driver_warnings(builds)[1:] == [
        "ml.g5.xlarge: a processing job cannot choose its host's GPU driver, and AWS does not document it. The "
        f"job ends in its first minute if the driver does not run the CUDA of {TRITON}. Then choose an older "
        "hosting.triton_version, or build on an EC2 instance of that family in the image.",
    ]


@pytest.mark.parametrize(("version", "failing"), [("24.09", None), ("25.09", '{"470": "24.09"}')])
def test_a_job_on_a_gpu_gets_the_drivers_on_which_its_image_fails(
    folder: WorkloadFolder, version: str, failing: str | None
) -> None:
    image_uri = TRITON.replace("24.09", version)
    for job in plan(folder, "gpu", image_uri=image_uri):
        assert job.environment.get("FAILING_DRIVERS") == failing
    assert plan(folder, "cpu", image_uri=image_uri)[0].environment == {}


def test_types_of_one_compute_capability_share_an_engine(folder: WorkloadFolder) -> None:
    both = with_settings(folder, ["targets.gpu.instance_types=ml.g4dn.xlarge,ml.g6e.xlarge,ml.g6.xlarge"])
    assert [job.instance_type for job in plan(both, "gpu")] == ["ml.g4dn.xlarge", "ml.g6e.xlarge"]
    assert [job.instance_type for job in plan(both, "gpu", instance_type="ml.g6.2xlarge")] == [
        "ml.g4dn.xlarge",
        "ml.g6.2xlarge",
    ]


def test_the_other_targets_are_built_on_a_cpu(folder: WorkloadFolder) -> None:
    registry = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
    jobs = {name: plan(folder, name)[0] for name in ("cpu", "inf1", "inf2")}
    assert {name: (job.instance_type, image(job).removeprefix(f"{registry}/")) for name, job in jobs.items()} == {
        "cpu": ("ml.c5.2xlarge", "pytorch-training:2.10.0-cpu-py313"),
        "inf1": ("ml.c5.4xlarge", "pytorch-inference-neuron:1.13.1-neuron-py310-sdk2.20.2-ubuntu20.04"),
        "inf2": ("ml.c5.4xlarge", "pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.30.0-ubuntu24.04"),
    }
    assert driver_warnings([*jobs.values()]) == []


def test_the_request_names_the_build_and_its_places(folder: WorkloadFolder) -> None:
    (job,) = plan(folder, "traced", max_runtime_s=600)
    request = job.request()
    assert request["AppSpecification"]["ContainerEntrypoint"] == ["python3", "/opt/ml/processing/source/entry.py"]
    assert request["AppSpecification"]["ContainerArguments"] == ["spellcheck", "traced", "torchscript"]
    assert job.source_url == "s3://bucket/model-build/spellcheck/traced/20261121-034500/source"
    assert job.output_url == "s3://bucket/model-build/spellcheck/traced/20261121-034500/c5"
    assert job.name == "spellcheck-traced-20261121-034500"
    assert request["RoleArn"] == ROLE
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 600}
    assert request["Tags"] == [{"Key": "workload", "Value": "spellcheck"}, {"Key": "target", "Value": "traced"}]


def test_a_key_encrypts_output_and_volume_but_not_the_disk_inside_a_gpu_instance(folder: WorkloadFolder) -> None:
    (cpu,) = plan(folder, "cpu", kms_key="key")
    assert cpu.request()["ProcessingOutputConfig"]["KmsKeyId"] == cpu.kms_key == "key"
    assert cpu.request()["ProcessingResources"]["ClusterConfig"]["VolumeKmsKeyId"] == "key"
    for gpu in plan(folder, "gpu", kms_key="key"):
        assert gpu.kms_key == "key"
        assert "VolumeKmsKeyId" not in gpu.request()["ProcessingResources"]["ClusterConfig"]


def test_a_wanted_type_replaces_only_its_own_gpu(folder: WorkloadFolder) -> None:
    builds = plan(folder, "gpu", instance_type="ml.g5.2xlarge")
    assert [job.instance_type for job in builds] == ["ml.g4dn.xlarge", "ml.g5.2xlarge"]
    assert plan(folder, "inf1", instance_type="ml.c6i.8xlarge")[0].instance_type == "ml.c6i.8xlarge"


def test_an_engine_is_built_in_the_image_that_the_workload_names(workloads_copy: Path) -> None:
    toml = workloads_copy / "spellcheck" / "workload.toml"
    own = TRITON.replace("sagemaker", "our")
    gpu = '\n[targets.gpu]\nruntime = "tensorrt"\ninstance_types = ["ml.g5.xlarge"]\n'
    toml.write_text(f'{toml.read_text("utf-8")}image_uri = "{own}"\n{gpu}', "utf-8")
    named = load_workload("spellcheck", workloads_copy)
    assert image(plan(named, "gpu")[0]) == own
    assert image(plan(named, "cpu")[0]) != own


@pytest.mark.parametrize(
    ("variant", "wanted", "why"),
    [
        ("cpu", "c5.xlarge", "SageMaker's types begin with ml.: ml.c5.xlarge."),
        (
            "inf1",
            "ml.inf1.xlarge",
            "Processing jobs do not run on Inferentia or Trainium, and compiling needs neither: leave it out, or "
            "choose a CPU type such as ml.c5.4xlarge.",
        ),
        ("gpu", "ml.g6.xlarge", "An engine is built on the GPU it is for, and this target is for g4dn, g5."),
    ],
)
def test_an_instance_that_cannot_build_the_target_is_refused(
    folder: WorkloadFolder, variant: str, wanted: str, why: str
) -> None:
    message = message_of(UsageError, plan, folder, variant, instance_type=wanted)
    assert message == f"--instance-type: got '{wanted}'. {why}"


def test_a_triton_that_was_never_published_is_refused(tmp_path: Path) -> None:
    assert message_of(UsageError, triton_image, "19.01", "us-east-1", tmp_path / "workload.toml") == (
        f"{tmp_path}/workload.toml: hosting.triton_version: got '19.01', but sagemaker-core knows no such SageMaker "
        "Triton image. Known: 23.12, 24.01, 24.03, 24.05, 24.09, 25.04, 25.09, 26.05. Choose one, or name an image "
        "with --image-uri."
    )


def test_without_the_data_of_images_the_package_is_named(
    folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "sagemaker.core", None)
    images._data.cache_clear()
    assert message_of(Unavailable, plan, folder, "cpu") == (
        "The Python package 'sagemaker-core' is not installed, and it knows the accounts of AWS's images. Install it "
        "with `pip install -e '.[cdk]'`, or name an image with --image-uri."
    )


def test_long_names_that_differ_at_their_end_stay_different() -> None:
    parts = [("a" * 31, f"{'b' * 30}{end}") for end in "12"]
    assert len({job_name(each, "g5", "20261121-034500") for each in parts}) == 2
