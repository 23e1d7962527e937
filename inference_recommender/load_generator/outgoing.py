"""What a run sends and where to: every request as bytes, made before the clock starts."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from inference_recommender.load_generator import sagemaker
from inference_recommender.load_generator.errors import UnreadableCertificates
from inference_recommender.load_generator.plan import LoadPlan, SageMakerEndpoint
from inference_recommender.load_generator.signing import Signer
from inference_recommender.load_generator.requests import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Outgoing:
    target: Target
    requests: list[bytes]
    """In the order of the payloads; a `signer` replaces them as they age."""
    tls: ssl.SSLContext | None = None
    signer: Signer | None = None


def outgoing(plan: LoadPlan, bodies: Sequence[bytes]) -> Outgoing:
    """The requests of `plan`. Asks boto3 where the target is an endpoint by name: see `sagemaker.access`."""
    headers = {"Content-Type": plan.content_type, **plan.headers}
    if plan.endpoint is not None:
        return _signed(plan, plan.endpoint, headers, bodies)
    assert plan.url is not None, "held by LoadPlan"
    target = Target.of(plan.url)
    requests = [target.message(headers, body) for body in bodies]
    return Outgoing(target=target, requests=requests, tls=_tls(target, plan.ca_file))


def _signed(plan: LoadPlan, endpoint: SageMakerEndpoint, headers: dict[str, str], bodies: Sequence[bytes]) -> Outgoing:
    way = sagemaker.access(endpoint)
    signer = Signer(way.target, headers | sagemaker.headers(endpoint), bodies, way.region, way.credentials)
    return Outgoing(
        target=way.target,
        requests=signer.sign_all(),
        tls=_tls(way.target, plan.ca_file or way.ca_file),
        signer=signer,
    )


def _tls(target: Target, ca_file: Path | None) -> ssl.SSLContext | None:
    if not target.tls:
        return None
    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:  # an SSLError is one
        raise UnreadableCertificates(ca_file, error.strerror or str(error)) from error
