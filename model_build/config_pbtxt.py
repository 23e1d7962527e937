"""The text of config.pbtxt. Pure: a workload's serving, the decoding settings and the runtime's files, nothing read.

Format: Triton's ModelConfig protobuf in text form. `max_batch_size` is always written out.
"""

from containers.text2text.settings import Settings
from workloads import Serving

WARMUP_FILE = "query"


def render(name: str, serving: Serving, settings: Settings) -> str:
    """config.pbtxt of the model `name`."""
    return (
        "\n\n".join(
            [
                f'name: "{name}"\nbackend: "python"\nmax_batch_size: {serving.max_batch_size}',
                _tensor("input", "TEXT"),
                _tensor("output", "CORRECTED"),
                _dynamic_batching(serving),
                f"instance_group [\n  {{ kind: KIND_CPU count: {serving.model_instances} }}\n]",
                *(_parameter(key, value) for key, value in settings.to_parameters().items()),
                *(_warmup(size) for size in warmup_sizes(serving)),
            ]
        )
        + "\n"
    )


def warmup_sizes(serving: Serving) -> list[int]:
    """The batch sizes a scheduler forms most: one, the preferred ones, the largest."""
    return sorted({1, *serving.preferred_batch_sizes, serving.max_batch_size})


def _tensor(field: str, name: str) -> str:
    return f'{field} [\n  {{ name: "{name}" data_type: TYPE_STRING dims: [ 1 ] }}\n]'


def _dynamic_batching(serving: Serving) -> str:
    preferred = ", ".join(map(str, serving.preferred_batch_sizes))
    lines = [f"  preferred_batch_size: [ {preferred} ]"] if preferred else []
    lines.append(f"  max_queue_delay_microseconds: {round(serving.max_queue_delay_ms * 1000)}")
    return "\n".join(["dynamic_batching {", *lines, "}"])


def _parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'


def _warmup(batch_size: int) -> str:
    return (
        f'model_warmup {{\n  name: "batch of {batch_size}"\n  batch_size: {batch_size}\n'
        '  inputs { key: "TEXT" value { data_type: TYPE_STRING dims: [ 1 ] '
        f'input_data_file: "{WARMUP_FILE}" }} }}\n}}'
    )
