"""The utilisation of this machine's GPUs is read from NVML, and an account with a GPU publishes it."""

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.measure.job_requests import TestedModel, plan_default_job
from local_aws import nvml
from local_aws.cloudwatch import LocalCloudWatchBackend, metric_key, statistic
from local_aws.process.local_account import LocalAccount
from local_aws.sagemaker.endpoint_metrics import publish_window
from local_aws.sagemaker.model_host import _visible_gpus, check_driver
from tests.local_aws.conftest import IMAGE, ROLE, Endpoints, clients, echo_request, upload, wait_until
from tests.local_aws.sagemaker.test_recommendation_jobs import ended, request, steps
from tests.local_aws.stand_in_nvml import StandInNvml
from workloads import Unavailable, UsageError, load_workload
from workloads.folder import with_settings
from workloads.images import TRITON_IMAGES, starts

TESTED = TestedModel(model="m", role_arn=ROLE, payload_url="s3://bucket/payloads.tar.gz")

START = 1_767_571_200
Use = Callable[[StandInNvml | None], None]


@pytest.fixture
def use(monkeypatch: pytest.MonkeyPatch) -> Iterator[Use]:
    """Puts a stand-in into the place of pynvml; None: the package is not installed."""

    def replace(module: StandInNvml | None) -> None:
        monkeypatch.setitem(sys.modules, "pynvml", module)
        nvml.library.cache_clear()

    yield replace
    nvml.library.cache_clear()


@pytest.mark.parametrize(
    ("module", "gpus", "percent"),
    [
        (StandInNvml([30], [70]), 1, 30.0),
        (StandInNvml([30], [70]), 2, 100.0),
        (StandInNvml([30]), 0, None),
        (StandInNvml([30]), 2, None),
        (StandInNvml([None]), 1, None),
        (StandInNvml([30], driver=False), 1, None),
        (None, 1, None),
    ],
    ids=["one", "the sum of two", "no gpu", "fewer gpus", "not supported", "no driver", "no package"],
)
def test_the_utilisation_is_that_of_the_instances_gpus(
    use: Use, module: StandInNvml | None, gpus: int, percent: float | None
) -> None:
    use(module)
    assert nvml.utilization_percent(gpus) == percent


def test_a_type_has_its_gpus_and_its_server_sees_no_others() -> None:
    types = ("ml.c5.xlarge", "ml.g4dn.xlarge", "ml.g4dn.12xlarge", "ml.inf1.xlarge", "ml.g99.xlarge")
    assert [nvml.gpu_count(name) for name in types] == [0, 1, 4, 0, 1]
    assert _visible_gpus("ml.c5.xlarge") == {}
    assert _visible_gpus("ml.g4dn.12xlarge")["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"


def test_a_job_samples_the_gpu_in_each_window_of_its_load(use: Use) -> None:
    """An experiment reads the mean of the busiest minute."""
    use(StandInNvml([10, 20, None, 60, 100]))
    cloudwatch = LocalCloudWatchBackend("us-east-1", "123456789012")
    window = {"invocations": 5, "errors": 0, "users": 2, "histogram": []}
    for second in (0, 1, 2, 30, 60):
        publish_window(cloudwatch, "job", "endpoint", "AllTraffic", 1, {**window, "started_at": START + second})
    dimensions = [{"Name": "EndpointName", "Value": "endpoint"}, {"Name": "VariantName", "Value": "AllTraffic"}]
    key = metric_key("/aws/sagemaker/Endpoints", "GPUUtilization", dimensions)
    minutes = cloudwatch.by_period(key, START, START + 120, 60)
    assert [statistic("Average", each) for each in minutes.values()] == [30.0, 100.0]


@pytest.fixture(scope="module")
def gpu_account(tmp_path_factory: pytest.TempPathFactory, toolchain: Path) -> Iterator[LocalAccount]:
    state = tmp_path_factory.mktemp("gpu_account")
    with LocalAccount.start(
        state=state, toolchain=toolchain, pace="quick", program="tests.local_aws.gpu_account"
    ) as running:
        upload(running)
        yield running


@pytest.mark.integration
def test_on_a_machine_with_a_gpu_jobs_and_endpoints_of_gpu_types_run_and_have_its_utilisation(
    gpu_account: LocalAccount, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, client = datetime.now(UTC), clients(gpu_account)
    sagemaker, made = client("sagemaker"), Endpoints(client("sagemaker"))
    for name, value in gpu_account.environment.items():
        monkeypatch.setenv(name, value)
    account = SageMakerAccount()

    def utilisation(endpoint: str) -> float | None:
        return account.gpu_utilization(endpoint, "AllTraffic", began, datetime.now(UTC))

    types = ("ml.g4dn.xlarge", "ml.g4dn.12xlarge", "ml.c5.xlarge")
    sagemaker.create_inference_recommendations_job(**request("gpus", made.model("echo"), instance_types=types))
    assert ended(sagemaker, "gpus")["Status"] == "COMPLETED"
    one, four, none = (step["InferenceBenchmark"] for step in steps(sagemaker, "gpus"))
    assert four["FailureReason"] == (
        "ml.g4dn.12xlarge has 4 NVIDIA GPUs and this machine has 1: choose a smaller instance type."
    )
    assert utilisation(one["EndpointConfiguration"]["EndpointName"]) == 37.0
    assert utilisation(none["EndpointConfiguration"]["EndpointName"]) is None
    made.settled(made.create("shop", config=made.config("shop", instance_type="ml.g4dn.xlarge")))
    runtime: Any = client("sagemaker-runtime")
    runtime.invoke_endpoint(EndpointName="shop", Body=echo_request("a"), ContentType="application/json")
    assert wait_until(lambda: utilisation("shop")) == 37.0


def image(version: str) -> str:
    return f"{IMAGE.partition(':')[0]}:{version}-py3"


@pytest.mark.parametrize("instance_type", ["ml.g4dn.xlarge", "ml.g5.xlarge", "ml.g6.xlarge"])
@pytest.mark.parametrize("version", TRITON_IMAGES)
def test_a_job_is_refused_where_the_account_would_not_start_the_image(version: str, instance_type: str) -> None:
    settings = [f"hosting.triton_version={version}", f"targets.tensorrt.instance_types={instance_type}"]
    workload = with_settings(load_workload("spellcheck"), settings).workload
    plan = plan_default_job(workload, TESTED, "job-1")
    if starts(version, instance_type) is False:
        with pytest.raises(
            UsageError, match=f"{instance_type} start with NVIDIA driver 470, on which Triton {version}"
        ):
            plan.check_drivers(workload)
        with pytest.raises(Unavailable, match="did not pass the ping health check"):
            check_driver(image(version), instance_type, None)
    else:
        known = starts(version, instance_type) is True
        assert len(plan.check_drivers(workload)) == (0 if known else 1)
        check_driver(image(version), instance_type, None)


@pytest.mark.integration
def test_a_job_fails_on_the_types_whose_hosts_do_not_start_the_image(gpu_account: LocalAccount) -> None:
    sagemaker, types = clients(gpu_account)("sagemaker"), ("ml.g4dn.xlarge", "ml.g6.xlarge")
    Endpoints(sagemaker).model("image", image=image("25.04"))
    sagemaker.create_inference_recommendations_job(**request("images", "image", instance_types=types))
    ended(sagemaker, "images")
    old, newer = (each["InferenceBenchmark"].get("FailureReason") for each in steps(sagemaker, "images"))
    assert old == (
        "The primary container did not pass the ping health check: "
        "Triton 25.04 does not start with NVIDIA driver 470 of ml.g4dn.xlarge."
    )
    assert newer is None


@pytest.mark.integration
def test_an_endpoint_of_a_newer_image_needs_the_hosts_ami(gpu_account: LocalAccount) -> None:
    made = Endpoints(clients(gpu_account)("sagemaker"))
    for name, ami in (("without", None), ("with", "al2023-ami-sagemaker-inference-gpu-4-1")):
        made.config(name, instance_type="ml.g4dn.xlarge", ami=ami, image=image("25.09"))
    described = {name: made.settled(made.create(name, config=name)) for name in ("without", "with")}
    made.delete_all()
    assert described["with"]["EndpointStatus"] == "InService"
    assert described["without"]["EndpointStatus"] == "Failed"
    assert (
        "Triton 25.09 does not start with NVIDIA driver 470 of ml.g4dn.xlarge" in described["without"]["FailureReason"]
    )
