"""The configurations that `tune` searches: `[tune]` of a workload, completed with values for the machine. Pure.

A configuration is a target with its threads and its serving table. Configurations that Triton treats alike count once:
without batching, preferred sizes and delays have no effect.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeVar

from workloads import Serving, Workload
from workloads.document import Document
from workloads.instances import NEURON_FAMILIES, hardware
from workloads.serving import Tune

T = TypeVar("T")

BATCHES = (1, 4, 16)
DELAYS = (0.0, 0.02, 0.1)
"""Shares of the latency limit."""
GPU_INSTANCES = (1, 2)
GPU_RUNTIMES = ("cuda", "tensorrt")


class ServingConfiguration(Document):
    """One way to serve the model."""

    target: str
    threads: int | None
    """Threads of each model instance; None on a GPU."""
    serving: Serving

    @property
    def batch(self) -> int:
        """Maximum number of requests in a batch."""
        return self.serving.max_batch_size if self.serving.dynamic_batching else 1

    @property
    def parallelism(self) -> int:
        """Number of concurrent threads times the requests of each."""
        return self.serving.model_instances * (self.threads or 1) * self.batch

    @property
    def family(self) -> tuple[object, ...]:
        """All but the queue delay, which has no effect on a saturated server."""
        serving = self.serving
        return (self.target, self.threads, serving.model_instances, self.batch, serving.preferred_batch_sizes)

    @property
    def label(self) -> str:
        """A unique name in its space, such as "cpu, 2 × 1 thread, batch 16 (4, 8), delay 1 ms"."""
        serving = self.serving
        threads = "" if self.threads is None else f" × {self.threads} thread{'s' if self.threads != 1 else ''}"
        copies = (
            f"{serving.model_instances}{threads or (' instances' if serving.model_instances != 1 else ' instance')}"
        )
        if self.batch == 1:
            return f"{self.target}, {copies}, no batching"
        sizes = f" ({', '.join(map(str, serving.preferred_batch_sizes))})" if serving.preferred_batch_sizes else ""
        return f"{self.target}, {copies}, batch {self.batch}{sizes}, delay {serving.max_queue_delay_ms:g} ms"


class LeftOut(Document):
    """Configurations that are not tried, and the reason."""

    configurations: tuple[ServingConfiguration, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Space:
    """Configurations of one repository are neighbours. The workload's own one comes first if it is among them."""

    configurations: tuple[ServingConfiguration, ...]
    left_out: tuple[LeftOut, ...]


def space(workload: Workload, tune: Tune, cores: int) -> Space:
    """Returns the configurations to search on a machine with `cores` cores."""
    all_of = dict.fromkeys(_combinations(workload, _completed(workload, tune, cores)))
    limit, rows = workload.latency_objective.model_latency_ms, workload.latency_objective.rows_per_invocation
    named = bool(tune.threads and tune.model_instances)
    tried, small, slow, crowded = [], [], [], []
    for each in all_of:
        if each.serving.max_batch_size < rows:
            small.append(each)
        elif each.serving.max_queue_delay_ms >= limit and each.batch > 1:
            slow.append(each)
        elif not named and each.serving.model_instances * (each.threads or 0) > cores:
            crowded.append(each)
        else:
            tried.append(each)
    reasons = (
        (small, f"their batches do not hold the {rows} rows of a request"),
        (slow, f"a request that waits for a queue delay of {limit:g} ms misses the limit"),
        (crowded, f"model instances times threads are more than the {cores} cores"),
    )
    return Space(
        configurations=tuple(sorted(tried, key=lambda each: each != own(workload, each.target))),
        left_out=tuple(LeftOut(configurations=tuple(out), reason=reason) for out, reason in reasons if out),
    )


def own(workload: Workload, target: str) -> ServingConfiguration:
    """Returns the current configuration of a target."""
    hosted = workload.variant(workload.hosting.target)
    serving = hosted.serving if hosted.target == target else workload.serving
    return _plain(target, _threads(workload, target), serving)


def default_targets(workload: Workload, *, gpu: bool) -> tuple[str, ...]:
    """Returns the hosted target, or the CPU's if a Triton of this machine cannot run that."""
    hosted = workload.variant(workload.hosting.target).target
    runs_here = workload.targets[hosted].runtime not in NEURON_FAMILIES and (gpu or not _on_gpu(workload, hosted))
    return (hosted,) if runs_here or workload.cpu_target is None else (workload.cpu_target,)


def _completed(workload: Workload, tune: Tune, cores: int) -> Tune:
    """Fills in the keys that `[tune]` leaves empty."""
    own_serving = [own(workload, target).serving for target in tune.targets]
    limit = workload.latency_objective.model_latency_ms
    on_cpu = not any(_on_gpu(workload, target) for target in tune.targets)
    powers = _powers_of_two(cores)
    defaults: dict[str, Any] = {
        "threads": powers,
        "model_instances": powers if on_cpu else GPU_INSTANCES,
        "max_batch_sizes": _with(BATCHES, (each.max_batch_size for each in own_serving)),
        "preferred_batch_sizes": _with(((),), (each.preferred_batch_sizes for each in own_serving)),
        "max_queue_delays_ms": _with(
            (share * limit for share in DELAYS), (each.max_queue_delay_ms for each in own_serving)
        ),
    }
    return tune.model_copy(update={key: value for key, value in defaults.items() if not getattr(tune, key)})


def _combinations(workload: Workload, tune: Tune) -> Iterator[ServingConfiguration]:
    """Yields every combination, with duplicates; those of one target and number of threads in a row."""
    for target in tune.targets:
        known = _threads(workload, target)
        for threads in (None,) if known is None else tune.threads:
            for instances, batch, preferred, delay in product(
                tune.model_instances, tune.max_batch_sizes, tune.preferred_batch_sizes, tune.max_queue_delays_ms
            ):
                if preferred and max(preferred) > batch:
                    continue
                serving = own(workload, target).serving.model_copy(
                    update={
                        "dynamic_batching": batch > 1,
                        "instance_groups": (),
                        **({"max_batch_size": batch} if batch > 1 else {}),
                        "preferred_batch_sizes": preferred,
                        "max_queue_delay_ms": delay,
                        "model_instances": instances,
                    }
                )
                yield _plain(target, threads, serving)


def _plain(target: str, threads: int | None, serving: Serving) -> ServingConfiguration:
    """Returns the configuration with a plain number of instances, and without unused keys if nothing is batched."""
    if serving.instance_groups:
        serving = serving.on_cpu
    if not serving.dynamic_batching or serving.max_batch_size == 1:
        serving = serving.model_copy(
            update={"dynamic_batching": False, "preferred_batch_sizes": (), "max_queue_delay_ms": 0.0}
        )
    return ServingConfiguration(target=target, threads=threads, serving=serving)


def _threads(workload: Workload, target: str) -> int | None:
    """Returns the threads of a target's model instances, or None on a GPU."""
    threads = getattr(workload.targets[target], "threads", None)
    return None if threads is None or _on_gpu(workload, target) else int(threads)


def _on_gpu(workload: Workload, target: str) -> bool:
    known = workload.targets[target]
    return known.runtime in GPU_RUNTIMES or "GPU" in map(hardware, known.instance_types)


def _powers_of_two(most: int) -> tuple[int, ...]:
    return tuple(2**power for power in range(most.bit_length()))


def _with(defaults: Iterable[T], own: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys([*defaults, *own]))
