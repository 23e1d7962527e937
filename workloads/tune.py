"""`[tune]` of workload.toml: the configurations among which `tune` searches."""

from typing import Annotated

from pydantic import Field

from workloads.document import Document

PositiveInt = Annotated[int, Field(ge=1, le=1024)]
Milliseconds = Annotated[float, Field(ge=0, le=60_000)]


class Tune(Document):
    """The values to try of each key; every combination that makes sense is a configuration. An empty list leaves the
    choice to the machine: powers of two up to its cores, and the workload's own values."""

    targets: tuple[str, ...] = Field(default=(), description="Runtimes and precisions; default: the hosted target.")
    threads: tuple[PositiveInt, ...] = Field(
        default=(), description="Of each model instance; default: powers of two up to the cores, and on GPUs as it is."
    )
    model_instances: tuple[PositiveInt, ...] = Field(
        default=(), description="Default: powers of two for which instances times threads are at most the cores."
    )
    max_batch_sizes: tuple[PositiveInt, ...] = Field(
        default=(), description="1 answers each request by itself; default: 1, 4, 16 and the workload's own."
    )
    preferred_batch_sizes: tuple[tuple[PositiveInt, ...], ...] = Field(
        default=(), description="Lists of preferred sizes; default: none, and the workload's own."
    )
    max_queue_delays_ms: tuple[Milliseconds, ...] = Field(
        default=(), description="Default: 0, 2 % and 10 % of the latency limit, and the workload's own."
    )
