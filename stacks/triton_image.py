"""Which container image serves a workload, and which host AMI starts it.

In: a workload's hosting and the instance type. Out: the image's URI, its repository to grant a pull on, the
AMI. The registry accounts come as data with sagemaker-core (read as a file: importing it would pull in boto3).
The AMI table is ours: CUDA releases from NVIDIA's Triton release notes, drivers from SageMaker's documentation.
It does not know what is inside an image that the workload names itself, beyond the Triton version it states.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from aws_cdk import Aws, CfnMapping, Stack, Token
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from stacks.errors import NotAnEcrImage, TritonNotInRegion, UnknownHostAmi, UnpublishedTriton
from stacks.instance_type import family, has_accelerator
from workloads import SageMakerEndpointHosting

REPOSITORY = "sagemaker-tritonserver"
REGISTRIES = "sagemaker/core/image_uri_config/sagemaker-tritonserver.json"

CUDA_12_AMI = "al2-ami-sagemaker-inference-gpu-3-1"
CUDA_13_AMI = "al2023-ami-sagemaker-inference-gpu-4-1"
HOST_AMIS: Mapping[str, str] = {
    "24.01": CUDA_12_AMI,
    "24.03": CUDA_12_AMI,
    "24.05": CUDA_12_AMI,
    "24.09": CUDA_12_AMI,
    "25.04": CUDA_12_AMI,
    "25.09": CUDA_13_AMI,
    "26.05": CUDA_13_AMI,
}
# These start with driver R470 unless told otherwise. What other GPU families start with is not known.
GPU_FAMILIES = ("g4dn", "g5")

ECR_IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?"
    r"/(?P<repository>[a-z0-9._/-]+)(:[\w.-]+|@sha256:[0-9a-f]{64})"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TritonImageProps:
    hosting: SageMakerEndpointHosting
    instance_type: str
    workload_file: Path


class TritonImage(Construct):
    """`uri` for the model's container, `repository` to grant a pull on, `host_ami` for the variant."""

    def __init__(self, scope: Construct, id: str, props: TritonImageProps) -> None:
        super().__init__(scope, id)
        self.host_ami = _host_ami(props.hosting, props.instance_type, props.workload_file)
        account, region, name, self.uri = (
            self._stock(props)
            if props.hosting.image_uri is None
            else _own(props.hosting.image_uri, props.workload_file)
        )
        self.repository = ecr.Repository.from_repository_attributes(
            self,
            "Repository",
            repository_name=name,
            repository_arn=Stack.of(self).format_arn(
                service="ecr", account=account, region=region, resource="repository", resource_name=name
            ),
        )

    def _stock(self, props: TritonImageProps) -> tuple[str, str, str, str]:
        version, region = props.hosting.triton_version, Stack.of(self).region
        account = self._registry_account(version, region, props.workload_file)
        processor = "" if has_accelerator(props.instance_type) else "-cpu"
        host = f"{account}.dkr.ecr.{region}.{Aws.URL_SUFFIX}"
        return account, region, REPOSITORY, f"{host}/{REPOSITORY}:{version}-py3{processor}"

    def _registry_account(self, version: str, region: str, file: Path) -> str:
        published = registry_accounts()
        if version not in published:
            raise UnpublishedTriton(file, version, sorted(published))
        accounts = published[version]
        if Token.is_unresolved(region):
            by_region = {name: {"account": account} for name, account in sorted(accounts.items())}
            return CfnMapping(self, "Registries", mapping=by_region).find_in_map(region, "account")
        if region not in accounts:
            raise TritonNotInRegion(file, version, region, sorted(accounts))
        return accounts[region]


def registry_accounts() -> dict[str, dict[str, str]]:
    """Triton version → region → account of the registry, as sagemaker-core has them."""
    text = Path(str(distribution("sagemaker-core").locate_file(REGISTRIES))).read_text("utf-8")
    return {version: dict(entry["registries"]) for version, entry in json.loads(text)["versions"].items()}


def _host_ami(hosting: SageMakerEndpointHosting, instance_type: str, file: Path) -> str | None:
    """The variant's `InferenceAmiVersion`; None for CPU. Raises `UnknownHostAmi`, naming `file`."""
    if not has_accelerator(instance_type):
        return None
    version = hosting.triton_version
    if family(instance_type) not in GPU_FAMILIES or version not in HOST_AMIS:
        raise UnknownHostAmi(file, version, instance_type, list(HOST_AMIS), GPU_FAMILIES)
    return HOST_AMIS[version]


def _own(image_uri: str, file: Path) -> tuple[str, str, str, str]:
    match = ECR_IMAGE.fullmatch(image_uri)
    if match is None:
        raise NotAnEcrImage(file, image_uri)
    return match["account"], match["region"], match["repository"], image_uri
