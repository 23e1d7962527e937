"""CDK: constructs own, stacks compose. Knows the contract and `aws_cdk`; no clock, no environment.

Any CDK app can use the constructs of `__all__`. docs/constructs.md has an example of each.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stacks.batch.scheduled_batch import ScheduledBatch
    from stacks.ecs.service import InferentiaService
    from stacks.endpoint.alarms import EndpointAlarms
    from stacks.endpoint.endpoint import RecommendedEndpoint
    from stacks.endpoint.scaling import RecommendedScaling
    from stacks.model_archive import ModelArchive
    from stacks.own_image import EcrImage
    from stacks.release.pipeline import ReleasePipeline

__all__ = [
    "EcrImage",
    "EndpointAlarms",
    "InferentiaService",
    "ModelArchive",
    "RecommendedEndpoint",
    "RecommendedScaling",
    "ReleasePipeline",
    "ScheduledBatch",
]


def __getattr__(name: str) -> Any:
    """Imports a construct when it is first used: `aws_cdk` takes seconds, and `python -m stacks` needs none."""
    if name not in __all__:
        raise AttributeError(f"module 'stacks' has no attribute '{name}'")
    if name == "ReleasePipeline":  # Its library takes long to import.
        from stacks.release.pipeline import ReleasePipeline

        return ReleasePipeline
    from stacks.batch.scheduled_batch import ScheduledBatch
    from stacks.ecs.service import InferentiaService
    from stacks.endpoint.alarms import EndpointAlarms
    from stacks.endpoint.endpoint import RecommendedEndpoint
    from stacks.endpoint.scaling import RecommendedScaling
    from stacks.model_archive import ModelArchive
    from stacks.own_image import EcrImage

    endpoint = (RecommendedEndpoint, RecommendedScaling, EndpointAlarms)
    constructs = (*endpoint, EcrImage, InferentiaService, ModelArchive, ScheduledBatch)
    return {each.__name__: each for each in constructs}[name]
