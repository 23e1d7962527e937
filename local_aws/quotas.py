"""The quotas of a new AWS account, by service and by the names of Service Quotas.

Sources, read in November 2026:

- Endpoints: the quotas of one young account, eu-north-1, January 2026 (oriolrius/sagemaker-distilgpt2-endpoint on
  GitHub, SAGEMAKER_QUOTAS.md). It lists 1 for ml.g4dn.xlarge and ml.g4dn.2xlarge. Other accounts with that entry
  were refused with "is 0 Instances", so accelerators have 0 here.
- Processing jobs: 0. Several reports of new accounts name no type with more.
- EC2: the defaults of "Amazon EC2 endpoints and quotas". CodeBuild: those of "Quotas for AWS CodeBuild".

AWS raises the quotas of an account with its use, so another new account may have others. Codes are this account's own.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from moto.core.exceptions import JsonRESTError
from moto.sagemaker.exceptions import SagemakerClientError
from moto.servicequotas.responses import ServiceQuotasResponse

from aws_api.service_model import enum
from local_aws.service_model import page
from workloads.instances import family, has_accelerator

Quotas = Mapping[str, Mapping[str, float]]
"""Service code → name of a quota → value."""

ENDPOINTS: Mapping[str, Mapping[str, int]] = {
    "c": {"large": 4, "xlarge": 2, "2xlarge": 1, "4xlarge": 1},
    "m": {"large": 4, "xlarge": 2, "2xlarge": 1},
    "r": {"large": 1, "xlarge": 1},
    "t": {"medium": 6, "large": 6, "xlarge": 6, "2xlarge": 6},
}
"""Instances of a CPU type by the family's first letter and the size. Other types have 0."""
ON_DEMAND = {
    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances": 5,
    "Running On-Demand G and VT instances": 0,
    "Running On-Demand Inf instances": 0,
}
"""vCPUs."""
NONE = "This local account has no quotas of {service}. `python -m local_aws --quotas new-account` has some."
BUILDS = {f"Concurrently running builds for Linux/{size} environment": 1 for size in ("Small", "Medium", "Large")}


def new_account() -> Quotas:
    sagemaker = {
        f"{name} for processing job usage": 0.0 for name in sorted(enum("sagemaker", "ProcessingInstanceType"))
    }
    for name in sorted(enum("sagemaker", "ProductionVariantInstanceType")):
        size = name.rpartition(".")[2]
        count = 0 if has_accelerator(name) else ENDPOINTS.get(family(name)[0], {}).get(size, 0)
        sagemaker[f"{name} for endpoint usage"] = float(count)
    return {"sagemaker": sagemaker, "ec2": ON_DEMAND, "codebuild": BUILDS}


class ResourceLimitExceeded(SagemakerClientError):
    code = "ResourceLimitExceeded"


def check(quotas: Quotas, use: str, used: Mapping[str, int], wanted: Mapping[str, int]) -> None:
    """Raises `ResourceLimitExceeded` in SageMaker's words for the first type that `wanted` takes beyond its quota."""
    for instance_type, delta in wanted.items():
        name = f"{instance_type} for {use} usage"
        limit, current = quotas.get("sagemaker", {}).get(name, math.inf), used.get(instance_type, 0)
        if current + delta > limit:
            raise ResourceLimitExceeded(
                f"The account-level service limit '{name}' is {limit:g} Instances, with current utilization of "
                f"{current} Instances and a request delta of {delta} Instances. Please use AWS Service Quotas to "
                "request an increase for this quota. If AWS Service Quotas is not available, contact AWS support to "
                "request an increase for this quota."
            )


def install(quotas: Quotas) -> None:
    """Makes moto answer Service Quotas with `quotas`, which are the account's own values and AWS's defaults."""

    def items(response: ServiceQuotasResponse, request: Mapping[str, Any]) -> list[dict[str, Any]]:
        if (service := request["ServiceCode"]) not in quotas:
            raise JsonRESTError("NoSuchResourceException", NONE.format(service=service))
        arn = f"arn:aws:servicequotas:{response.region}:{response.current_account}:{service}"
        return [_shown(service, arn, name, value) for name, value in quotas[service].items()]

    def list_quotas(response: ServiceQuotasResponse) -> str:
        request = json.loads(response.body)
        return json.dumps(page("Quotas", items(response, request), request))

    def get_quota(response: ServiceQuotasResponse) -> str:
        request = json.loads(response.body)
        for each in items(response, request):
            if each["QuotaCode"] == request["QuotaCode"]:
                return json.dumps({"Quota": each})
        raise JsonRESTError("NoSuchResourceException", f"This local account has no quota {request['QuotaCode']}.")

    for kind in ("", "aws_default_"):
        setattr(ServiceQuotasResponse, f"list_{kind}service_quotas", list_quotas)
        setattr(ServiceQuotasResponse, f"get_{kind}service_quota", get_quota)


def _shown(service: str, arn: str, name: str, value: float) -> dict[str, Any]:
    code = f"L-{hashlib.sha256(name.encode()).hexdigest()[:8].upper()}"
    facts = {"ServiceCode": service, "QuotaArn": f"{arn}/{code}", "QuotaCode": code, "QuotaName": name}
    return {**facts, "Value": float(value), "Unit": "None", "Adjustable": True, "GlobalQuota": False}
