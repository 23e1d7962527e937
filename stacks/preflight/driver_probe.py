"""Starts a Triton image on a host of an instance type, without an InferenceAmiVersion, and reads what its driver does.

The endpoint has a model of a few lines that initialises CUDA. Everything is deleted at the end.
"""

import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from aws_api import s3, service_model
from aws_api.errors import translate_aws_errors
from aws_api.sagemaker import ENDPOINT_LOG, SageMakerAccount
from aws_api.temporary_endpoint import EndpointFailed, EndpointSpec, Sleep, temporary_endpoint
from inference_recommender.payloads import tar_gz
from inference_recommender.sizing.prices import listed_price
from workloads import Unavailable, UsageError, images
from workloads.images import default_version, driver_of, starts, version_in
from workloads.instances import hardware

STARTUP_S = 900
LOG_WAITS = 6
"""CloudWatch Logs may have a line a minute after it was written."""
WAIT_S = 10.0
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
) -> EndpointSpec:
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
    name = f"probe-{instance_type.replace('.', '-')}-{now:%Y%m%d-%H%M%S}"
    image = f"{images.TRITON}:{version}-py3{'' if _has_gpu(instance_type) else '-cpu'}"
    return EndpointSpec(
        name=name,
        variant={"InstanceType": instance_type, "ContainerStartupHealthCheckTimeoutInSeconds": STARTUP_S},
        container={
            "Image": images.image_uri(image, account.region, (images.TRITON, "versions", version), "--version"),
            "ModelDataUrl": f"s3://{account.default_bucket()}/inference-recommender/probe/{name}/model.tar.gz",
            "Environment": {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "probe"},
        },
        role_arn=role_arn,
    )


def run_probe(
    endpoint: EndpointSpec,
    account: SageMakerAccount,
    progress: Callable[[str], None],
    sleep: Sleep = time.sleep,
    clock_s: Callable[[], float] = time.monotonic,
) -> ProbeResult:
    """Raises `Unavailable` if the endpoint fails for another reason than its container."""
    instance_type = endpoint.variant["InstanceType"]
    image, url = endpoint.container["Image"], endpoint.container["ModelDataUrl"]
    progress(f"Uploading {url}")
    kind = "KIND_GPU" if _has_gpu(instance_type) else "KIND_CPU"
    files = {"probe/config.pbtxt": CONFIG.format(kind=kind), "probe/1/model.py": MODEL}
    account.upload(url, tar_gz({name: text.encode() for name, text in files.items()}))
    try:
        begin_s = clock_s()
        try:
            with temporary_endpoint(account, endpoint, progress, sleep):
                started, detail = True, _invoke(endpoint.name, account)
        except EndpointFailed as error:
            started, detail = False, error.reason
        hours = (clock_s() - begin_s) / 3600
    finally:
        bucket, key = s3.split_url(url)
        account.call("s3", "delete_object", Bucket=bucket, Key=key)
    log = _driver_lines(endpoint.name, instance_type, account, progress, sleep)
    if not (started or log or CONTAINER_FAILED.search(detail)):
        raise Unavailable(f"The endpoint {endpoint.name} failed before its image started: {detail}")
    price = listed_price(instance_type, account.region)
    return ProbeResult(
        image=image,
        instance_type=instance_type,
        expected=starts(version_in(image), instance_type),
        started=started,
        detail=detail,
        log=log,
        hours=hours,
        cost_usd=None if price.usd_per_hour is None else hours * price.usd_per_hour,
        price=price.reason,
    )


def _has_gpu(instance_type: str) -> bool:
    return hardware(instance_type) == "GPU"


def _invoke(name: str, account: SageMakerAccount) -> str:
    """Returns what CUDA returned to the model."""
    client = account.client("sagemaker-runtime")
    with translate_aws_errors("InvokeEndpoint"):
        response = client.invoke_endpoint(EndpointName=name, ContentType="application/json", Body=json.dumps(REQUEST))
        code, release = json.loads(response["Body"].read())["outputs"][0]["data"]
    if code == -1:
        return "it answers, and the host has no CUDA driver"
    return f"it answers, cuInit returns {code}, CUDA {release // 1000}.{release % 1000 // 10}"


def _driver_lines(
    endpoint: str, instance_type: str, account: SageMakerAccount, progress: Callable[[str], None], sleep: Sleep
) -> list[str]:
    group = ENDPOINT_LOG.format(endpoint=endpoint)
    for _ in range(LOG_WAITS if _has_gpu(instance_type) else 1):
        streams = account.endpoint_log(endpoint)
        lines = [line.strip() for stream in streams for _, line in stream if DRIVER_LINE.search(line)]
        if lines or not _has_gpu(instance_type):
            return list(dict.fromkeys(lines))
        progress(f"Waiting for the driver line in {group}")
        sleep(WAIT_S)
    return []
