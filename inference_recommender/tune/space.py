"""The configurations that `tune` searches: `[tune]` of a workload, completed with values for the machine. Pure.

A configuration is a target with its threads and its serving table. Configurations that Triton treats alike count once:
without batching, preferred sizes and delays have no effect.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any

from workloads import Serving, Workload
from workloads.document import Document
from workloads.instances import NEURON_FAMILIES, hardware
from workloads.serving import Tune

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
        return self.serving.copies * (self.threads or 1) * self.batch

    @property
    def family(self) -> tuple[object, ...]:
        """All but the queue delay, which has no effect on a saturated server."""
        serving = self.serving
        return (self.target, self.threads, serving.copies, self.batch, serving.preferred_batch_sizes)

    @property
    def label(self) -> str:
        """A unique name in its space, such as "cpu, 2 × 1 thread, batch 16 (4, 8), delay 1 ms"."""
        serving, count = self.serving, self.serving.copies
        threads = "" if self.threads is None else f" × {self.threads} thread{'s' * (self.threads != 1)}"
        copies = f"{count}{threads or ' instance' + 's' * (count != 1)}"
        if self.batch == 1:
            return f"{self.target}, {copies}, no batching"
        sizes = f" ({', '.join(map(str, serving.preferred_batch_sizes))})" if serving.preferred_batch_sizes else ""
        return f"{self.target}, {copies}, batch {self.batch}{sizes}, delay {serving.max_queue_delay_ms:g} ms"


def space(
    workload: Workload, tune: Tune, cores: int
) -> tuple[tuple[ServingConfiguration, ...], dict[str, tuple[str, ...]]]:
    """Returns the configurations to search on a machine with `cores` cores, and labels of those left out by reason.

    Configurations of one repository are neighbours. The workload's own one comes first if it is among them.
    """
    all_of = dict.fromkeys(_combinations(workload, _completed(workload, tune, cores)))
    limit, rows = workload.latency_objective.model_latency_ms, workload.latency_objective.rows_per_invocation
    named = bool(tune.threads and tune.model_instances)
    tried: list[ServingConfiguration] = []
    left_out: dict[str, tuple[str, ...]] = {}
    for each in all_of:
        if each.serving.max_batch_size < rows:
            why = f"their batches do not hold the {rows} rows of a request"
        elif each.serving.max_queue_delay_ms >= limit and each.batch > 1:
            why = f"a request that waits for a queue delay of {limit:g} ms misses the limit"
        elif not named and each.serving.copies * (each.threads or 0) > cores:
            why = f"model instances times threads are more than the {cores} cores"
        else:
            tried.append(each)
            continue
        left_out[why] = (*left_out.get(why, ()), each.label)
    tried.sort(key=lambda each: each != own(workload, each.target))
    return tuple(tried), left_out


def own(workload: Workload, target: str) -> ServingConfiguration:
    """Returns the current configuration of a target."""
    hosted = workload.variant(workload.hosting.target)
    served = hosted if hosted.target == target else workload.variant(target)
    return _plain(target, _threads(workload, target), served.serving)


def default_targets(workload: Workload, *, gpu: bool) -> tuple[str, ...]:
    """Returns the hosted target, or the CPU's if a Triton of this machine cannot run that."""
    hosted = workload.variant(workload.hosting.target).target
    runs_here = workload.targets[hosted].runtime not in NEURON_FAMILIES and (gpu or not _on_gpu(workload, hosted))
    return (hosted,) if runs_here or workload.cpu_target is None else (workload.cpu_target,)


def _completed(workload: Workload, tune: Tune, cores: int) -> Tune:
    """Fills in the keys that `[tune]` leaves empty."""
    serving = [own(workload, target).serving for target in tune.targets]
    limit, powers = workload.latency_objective.model_latency_ms, [2**power for power in range(cores.bit_length())]
    on_cpu = not any(_on_gpu(workload, target) for target in tune.targets)
    defaults: dict[str, Iterable[Any]] = {
        "threads": powers,
        "model_instances": powers if on_cpu else GPU_INSTANCES,
        "max_batch_sizes": (*BATCHES, *(each.max_batch_size for each in serving)),
        "preferred_batch_sizes": ((), *(each.preferred_batch_sizes for each in serving)),
        "max_queue_delays_ms": (*(share * limit for share in DELAYS), *(each.max_queue_delay_ms for each in serving)),
    }
    values = {key: tuple(dict.fromkeys(value)) for key, value in defaults.items() if not getattr(tune, key)}
    return tune.model_copy(update=values)


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
