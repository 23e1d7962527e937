"""The way to a SageMaker endpoint: the runtime's address, the region and the credentials that boto3 finds.

boto3 is asked for all of it, so AWS_ENDPOINT_URL_SAGEMAKER_RUNTIME, AWS_ENDPOINT_URL, AWS_CA_BUNDLE, profiles, roles
and partitions hold as they do everywhere else. Requests themselves are not sent through it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from aws_api.errors import NO_CREDENTIALS, NO_REGION, AwsUnavailable
from inference_recommender.load_generator.plan import SageMakerEndpoint
from inference_recommender.load_generator.requests import Target

if TYPE_CHECKING:
    from botocore.credentials import Credentials, ReadOnlyCredentials


@dataclass(frozen=True, kw_only=True, slots=True)
class Access:
    target: Target
    region: str
    ca_file: Path
    _credentials: "Credentials"

    def credentials(self) -> "ReadOnlyCredentials":
        """Those that hold now; fetches new ones when they are about to expire."""
        return self._credentials.get_frozen_credentials()


def access(endpoint: SageMakerEndpoint) -> Access:
    """Raises `AwsUnavailable` without credentials or a region."""
    import boto3  # only a run against an endpoint by name needs it
    from botocore.exceptions import NoRegionError
    from botocore.httpsession import get_cert_path
    from botocore.session import Session

    core = Session()
    session = boto3.Session(botocore_session=core, region_name=endpoint.region)
    if (credentials := session.get_credentials()) is None:
        raise AwsUnavailable(NO_CREDENTIALS)
    try:
        client = session.client("sagemaker-runtime")
    except NoRegionError:
        raise AwsUnavailable(NO_REGION) from None
    return Access(
        target=Target.of(f"{client.meta.endpoint_url}/endpoints/{endpoint.name}/invocations"),
        region=client.meta.region_name,
        ca_file=Path(core.get_config_variable("ca_bundle") or get_cert_path(True) or ""),
        _credentials=credentials,
    )


def headers(endpoint: SageMakerEndpoint) -> dict[str, str]:
    return {} if endpoint.variant is None else {"X-Amzn-SageMaker-Target-Variant": endpoint.variant}
