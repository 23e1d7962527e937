"""What the Neuron server's server.json says of a workload: its `serving` and the target's placement."""

from containers.neuron.settings import ServerSettings
from workloads import NeuronTarget, Serving


def server_settings(model: str, serving: Serving, target: NeuronTarget) -> ServerSettings:
    """`model` is the name in answers. Triton's own settings, its cache and shared memory, have no counterpart."""
    return ServerSettings(
        model=model,
        max_batch_size=serving.max_batch_size,
        dynamic_batching=serving.dynamic_batching,
        preferred_batch_sizes=serving.preferred_batch_sizes,
        max_queue_delay_ms=serving.max_queue_delay_ms,
        model_instances=serving.model_instances,
        placement=target.placement,
        pipeline_cores=target.pipeline_cores,
    )
