"""Lays out the archive of a model for Neuron: not a Triton repository, but the folder that containers/neuron serves.

settings.json               what the serving code must know of the model
server.json                 how it is served: batching, workers, placement
tokenizer.json
preprocess.pt               what tokenises instead, where model.preprocess names it
goldens.json, parity.json   rows with the original's outputs, and how far each NeuronCore may be from them
model.LENGTH.neuron.pt      one compiled graph for each sequence length
"""

from pathlib import Path

from containers.encoder.goldens import GOLDENS, PARITY, ParityLimits
from containers.neuron.placement import ServerSettings
from model_build.checkpoint import Checkpoint
from model_build.encoder.graphs import settings
from model_build.neuron import arguments
from model_build.triton.repository import Content
from workloads import EncoderModel, NeuronTarget, Serving


def contents(
    name: str, model: EncoderModel, serving: Serving, target: NeuronTarget, checkpoint: Checkpoint, graphs: Path
) -> dict[str, Content]:
    """`graphs` is the folder with the compiled graphs."""
    compiled = [call.output for call in arguments.calls(target, model)]
    return {
        "settings.json": settings(model, target, checkpoint).to_json(),
        "server.json": server_settings(name, serving, target).to_json(),
        "tokenizer.json": checkpoint.tokenizer,
        GOLDENS: graphs / GOLDENS,
        PARITY: ParityLimits(**target.parity.model_dump()).to_json(),
        **({"preprocess.pt": checkpoint.preprocess} if checkpoint.preprocess else {}),
        **{output: graphs / output for output in compiled},
    }


def server_settings(name: str, serving: Serving, target: NeuronTarget) -> ServerSettings:
    return ServerSettings(
        model=name,
        max_batch_size=serving.max_batch_size,
        dynamic_batching=serving.dynamic_batching,
        preferred_batch_sizes=serving.preferred_batch_sizes,
        max_queue_delay_ms=serving.max_queue_delay_ms,
        model_instances=serving.copies,
        placement=target.placement,
        pipeline_cores=arguments.pipeline_cores(target),
    )
