"""Starts a Triton image on a host of an instance type, without an InferenceAmiVersion, and reads what its driver does.

The endpoint has a model of a few lines that initialises CUDA. Everything is deleted at the end.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from aws_api import s3, service_model
from aws_api.errors import translate_aws_errors
from aws_api.expiry import GRACE_S, expiry_tag
from aws_api.sagemaker import ENDPOINT_LOG, Endpoint, SageMakerAccount
from inference_recommender.payloads import tar_gz
from inference_recommender.sizing.prices import listed_price
from workloads import Unavailable, UsageError, images
from workloads.images import default_version, driver_of, starts, version_in
from workloads.instances import hardware

STARTUP_S = 900
LOG_WAITS = 6
"""CloudWatch Logs may have a line a minute after it was written."""
WAIT_S = 10.0

Sleep = Callable[[float], None]
DRIVER_LINE = re.compile(
    r"CUDA Forward Compatibility|kernel driver|NVIDIA Driver was not|\b803\b|no GPUs are available"
)
CONTAINER_FAILED = re.compile(r"ping health check|CannotStartContainer", re.IGNORECASE)
CONFIG = """
backend: "python"
max_batch_size: 1
input [{{name: "X" data_type: TYPE_INT32 dims: [1]}}]
output [{{name: "CUDA" data_type: TYPE_INT32 dims: [2]}}]
instance_group [{{count: 1 kind: {kind}}}]
"""
MODEL = """
import ctypes
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def execute(self, requests):
        code, release = -1, ctypes.c_int(0)
        try:
            cuda = ctypes.CDLL("libcuda.so.1")
            code = cuda.cuInit(0)
            cuda.cuDriverGetVersion(ctypes.byref(release))
        except OSError:
            pass
        answer = np.array([[code, release.value]], dtype=np.int32)
        return [pb.InferenceResponse([pb.Tensor("CUDA", answer)]) for _ in requests]
"""
REQUEST = {"inputs": [{"name": "X", "datatype": "INT32", "shape": [1, 1], "data": [0]}]}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeResult:
    image: str
    instance_type: str
    expected: bool | None
    """Whether the table says that the image starts there; None if no source says."""
    started: bool
    detail: str
    """States what CUDA returned, or why the endpoint failed."""
    log: Sequence[str]
    """The lines about the driver."""
    hours: float
    cost_usd: float | None
    price: str
    """The source of the price, or why it is unknown."""

    def lines(self) -> list[str]:
        words = {True: "starts", False: "does not start", None: "unknown"}
        driver = driver_of(self.instance_type)
        cost = "unknown" if self.cost_usd is None else f"{self.cost_usd:.2f} USD"
        return [
            f"image     {self.image}",
            f"host      {self.instance_type}, default driver: {driver or 'none in the table'}",
            f"expected  {words[self.expected]} (workloads/images.py)",
            f"result    {words[self.started]}: {self.detail}",
            *(f"log       {line}" for line in self.log or ["has no line about a driver"]),
            f"cost      {cost} for {self.hours * 60:.0f} min. {self.price}",
        ]


def plan_probe(
    instance_type: str, version: str | None, role_arn: str | None, account: SageMakerAccount, now: datetime
) -> Endpoint:
    """Returns the endpoint. Raises `UsageError` for an unknown type or version, and without a role."""
    known = service_model.enum("sagemaker", "ProductionVariantInstanceType")
    if instance_type not in known or hardware(instance_type) not in ("GPU", "x86 CPU"):
        raise UsageError(
            f"--probe: got '{instance_type}'. Allowed: instance types of SageMaker endpoints with a GPU or an x86 CPU, "
            "as ml.g4dn.xlarge."
        )
    version = version or default_version(instance_type)
    published = [tag for tag, regions in images.triton_registries("--version").items() if account.region in regions]
    if version not in published:
        allowed = ", ".join(sorted(published)) or "none, so choose another region with --region"
        raise UsageError(f"--version: got '{version}'. Allowed in {account.region}: {allowed}.")
    if role_arn is None:
        raise UsageError(
            "--role-arn: got none. --probe needs an IAM role that SageMaker may assume. The role must allow to pull "
            "SageMaker's Triton image, to write logs and to read the default bucket. Name one with the policy "
            "AmazonSageMakerFullAccess."
        )
    tag = expiry_tag(now + timedelta(seconds=STARTUP_S + GRACE_S))
    name = f"probe-{instance_type.replace('.', '-')}-{now:%Y%m%d-%H%M%S}"
    image = f"{images.TRITON}:{version}-py3{'' if _has_gpu(instance_type) else '-cpu'}"
    return Endpoint(
        name=name,
        role_arn=role_arn,
        image_uri=images.image_uri(image, account.region, (images.TRITON, "versions", version), "--version"),
        model_url=f"s3://{account.default_bucket()}/inference-recommender/probe/{name}/model.tar.gz",
        environment={"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "probe"},
        instance_type=instance_type,
        startup_s=STARTUP_S,
        tags={tag["Key"]: tag["Value"]},
    )


def run_probe(
    endpoint: Endpoint,
    account: SageMakerAccount,
    progress: Callable[[str], None],
    sleep: Sleep = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> ProbeResult:
    """Raises `Unavailable` if the endpoint fails for another reason than its container."""
    progress(f"Uploading {endpoint.model_url}")
    kind = "KIND_GPU" if _has_gpu(endpoint.instance_type) else "KIND_CPU"
    files = {"probe/config.pbtxt": CONFIG.format(kind=kind), "probe/1/model.py": MODEL}
    account.upload(endpoint.model_url, tar_gz({name: text.encode() for name, text in files.items()}))
    try:
        begin_s = clock_s()
        with _settled(endpoint, account, progress, sleep) as described:
            started = described["EndpointStatus"] == "InService"
            detail = _invoke(endpoint, account) if started else str(described.get("FailureReason", "no reason given"))
            log = _driver_lines(endpoint, account, progress, sleep)
        hours = (clock_s() - begin_s) / 3600
    finally:
        bucket, key = s3.split_url(endpoint.model_url)
        account.call("s3", "delete_object", Bucket=bucket, Key=key)
    if not (started or log or CONTAINER_FAILED.search(detail)):
        raise Unavailable(f"The endpoint {endpoint.name} failed before its image started: {detail}")
    price = listed_price(endpoint.instance_type, account.region)
    return ProbeResult(
        image=endpoint.image_uri,
        instance_type=endpoint.instance_type,
        expected=starts(version_in(endpoint.image_uri), endpoint.instance_type),
        started=started,
        detail=detail,
        log=log,
        hours=hours,
        cost_usd=None if price.usd_per_hour is None else hours * price.usd_per_hour,
        price=price.reason,
    )


def _has_gpu(instance_type: str) -> bool:
    return hardware(instance_type) == "GPU"


@contextmanager
def _settled(
    endpoint: Endpoint, account: SageMakerAccount, progress: Callable[[str], None], sleep: Sleep
) -> Iterator[Mapping[str, Any]]:
    """Yields the description of the endpoint, InService or Failed, and deletes it in any case: it costs by the hour."""
    requests = endpoint.requests()
    try:
        account.make_model(requests["create_model"])
        account.make_endpoint(requests["create_endpoint_config"], requests["create_endpoint"])
        while (described := account.describe_endpoint(endpoint.name))["EndpointStatus"] == "Creating":
            progress(f"{endpoint.name} is Creating")
            sleep(WAIT_S)
        progress(f"{endpoint.name} is {described['EndpointStatus']}")
        yield described
    finally:
        account.delete_endpoint(endpoint.name, progress, sleep)
        account.delete_model(endpoint.name)


def _invoke(endpoint: Endpoint, account: SageMakerAccount) -> str:
    """Returns what CUDA returned to the model."""
    client = account.client("sagemaker-runtime")
    with translate_aws_errors("InvokeEndpoint"):
        response = client.invoke_endpoint(
            EndpointName=endpoint.name, ContentType="application/json", Body=json.dumps(REQUEST)
        )
        code, release = json.loads(response["Body"].read())["outputs"][0]["data"]
    if code == -1:
        return "it answers, and the host has no CUDA driver"
    return f"it answers, cuInit returns {code}, CUDA {release // 1000}.{release % 1000 // 10}"


def _driver_lines(
    endpoint: Endpoint, account: SageMakerAccount, progress: Callable[[str], None], sleep: Sleep
) -> list[str]:
    group = ENDPOINT_LOG.format(endpoint=endpoint.name)
    for _ in range(LOG_WAITS if _has_gpu(endpoint.instance_type) else 1):
        streams = account.endpoint_log(endpoint.name)
        lines = [line.strip() for stream in streams for _, line in stream if DRIVER_LINE.search(line)]
        if lines or not _has_gpu(endpoint.instance_type):
            return list(dict.fromkeys(lines))
        progress(f"Waiting for the driver line in {group}")
        sleep(WAIT_S)
    return []
