"""CDK: constructs own, stacks compose. Knows the contract and `aws_cdk`; no clock, no environment.

Any CDK app can use the constructs of `__all__`. docs/constructs.md has an example of each.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stacks.batch.scheduled_batch import ScheduledBatch as ScheduledBatch
    from stacks.ecs.service import InferentiaService as InferentiaService
    from stacks.endpoint.alarms import EndpointAlarms as EndpointAlarms
    from stacks.endpoint.endpoint import RecommendedEndpoint as RecommendedEndpoint
    from stacks.endpoint.hosting_kinds import AsynchronousEndpoint as AsynchronousEndpoint
    from stacks.endpoint.hosting_kinds import ServerlessEndpoint as ServerlessEndpoint
    from stacks.endpoint.hosting_kinds import SharedEndpoint as SharedEndpoint
    from stacks.endpoint.scaling import RecommendedScaling as RecommendedScaling
    from stacks.model_archive import ModelArchive as ModelArchive
    from stacks.own_image import EcrImage as EcrImage
    from stacks.release.pipeline import ReleasePipeline as ReleasePipeline

_MODULES = {
    "AsynchronousEndpoint": "stacks.endpoint.hosting_kinds",
    "EcrImage": "stacks.own_image",
    "EndpointAlarms": "stacks.endpoint.alarms",
    "InferentiaService": "stacks.ecs.service",
    "ModelArchive": "stacks.model_archive",
    "RecommendedEndpoint": "stacks.endpoint.endpoint",
    "RecommendedScaling": "stacks.endpoint.scaling",
    "ReleasePipeline": "stacks.release.pipeline",
    "ScheduledBatch": "stacks.batch.scheduled_batch",
    "ServerlessEndpoint": "stacks.endpoint.hosting_kinds",
    "SharedEndpoint": "stacks.endpoint.hosting_kinds",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    """Imports a construct when it is first used: `aws_cdk` takes seconds, and `python -m stacks` needs none."""
    if name not in _MODULES:
        raise AttributeError(f"module 'stacks' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
