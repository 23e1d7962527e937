"""Waiting and computing time of requests inside Triton, from its counters. Pure.

Triton counts nanoseconds by model (statistics extension of KServe's protocol). Two readings give means of the requests
between them. `queue_ms` is the wait for model instances, summed over all models of an ensemble. `compute_ms` is that of
the whole batch of a request, in the model with the most computing, which answers. HTTP is not included.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from workloads.document import Document

NS_PER_MS = 1e6
PARTS = ("input", "infer", "output")


class ComputeTimes(Document):
    """Milliseconds, the means of a request."""

    input: float
    infer: float
    output: float

    @property
    def total(self) -> float:
        return self.input + self.infer + self.output


class ServerTimes(Document):
    """Means of the requests that a Triton answered between two readings."""

    queue_ms: float
    compute_ms: ComputeTimes
    requests: int
    rows_per_execution: float | None
    """Mean size of a batch, in the model that computed most by itself; None where none was run."""

    @property
    def waiting_share(self) -> float:
        total = self.queue_ms + self.compute_ms.total
        return self.queue_ms / total if total else 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelCounters:
    """A model's counters since its server's start; times in nanoseconds."""

    requests: int
    queue_ns: int
    compute_ns: Mapping[str, int]
    rows: int
    executions: int
    executed_ns: int
    """The time of all executions, each counted once whatever its batch; 0 for an ensemble, which has none."""

    @classmethod
    def read(cls, told: Mapping[str, Any]) -> Self:
        """Reads an item of `model_stats`. Raises LookupError or TypeError where it is none."""
        counted = told["inference_stats"]
        batches = told.get("batch_stats") or ()
        return cls(
            requests=int(counted["success"]["count"]),
            queue_ns=int(counted["queue"]["ns"]),
            compute_ns={part: int(counted[f"compute_{part}"]["ns"]) for part in PARTS},
            rows=int(told["inference_count"]),
            executions=int(told["execution_count"]) if batches else 0,
            executed_ns=sum(int(batch[f"compute_{part}"]["ns"]) for batch in batches for part in PARTS),
        )

    def __sub__(self, before: Self) -> Self:
        return type(self)(
            requests=self.requests - before.requests,
            queue_ns=self.queue_ns - before.queue_ns,
            compute_ns={part: self.compute_ns[part] - before.compute_ns[part] for part in PARTS},
            rows=self.rows - before.rows,
            executions=self.executions - before.executions,
            executed_ns=self.executed_ns - before.executed_ns,
        )


Counters = Mapping[str, ModelCounters]
"""A reading: the counters of each model by its name and version."""


def read_counters(answer: Mapping[str, Any]) -> Counters:
    """Reads Triton's answer. Raises LookupError, TypeError or ValueError where it is none."""
    return {f"{told['name']}:{told.get('version', '')}": ModelCounters.read(told) for told in answer["model_stats"]}


def answered(before: Counters, after: Counters) -> int:
    """Returns how many requests the model that answers has answered between two readings."""
    counted = _between(before, after)
    return _answering(counted).requests if counted else 0


def server_times(before: Counters, after: Counters) -> ServerTimes | None:
    """Returns the means between two readings; None where nothing was answered, or the server started anew."""
    counted = _between(before, after)
    if not counted:
        return None
    answering = _answering(counted)
    ran = max(counted, key=lambda model: model.executed_ns)
    return ServerTimes(
        queue_ms=sum(model.queue_ns for model in counted) / answering.requests / NS_PER_MS,
        compute_ms=ComputeTimes(
            **{part: answering.compute_ns[part] / answering.requests / NS_PER_MS for part in PARTS}
        ),
        requests=answering.requests,
        rows_per_execution=ran.rows / ran.executions if ran.executions else None,
    )


def warm_up_s(counters: Counters) -> float:
    """Returns how long models ran their warm-up, from the reading of a server that no one has asked yet: Triton counts
    the requests of `model_warmup` like others.
    """
    return sum(model.executed_ns for model in counters.values()) / 1e9


def _between(before: Counters, after: Counters) -> Sequence[ModelCounters]:
    """Returns what the models counted that answered anything."""
    changes = [model - before[name] if name in before else model for name, model in after.items()]
    return [change for change in changes if change.requests > 0]


def _answering(counted: Sequence[ModelCounters]) -> ModelCounters:
    return max(counted, key=lambda model: sum(model.compute_ns.values()))
