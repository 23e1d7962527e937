"""Waiting and computing time of requests inside Triton, from its counters. Pure.

Triton counts nanoseconds by model (statistics extension of KServe's protocol). `queue_ms` is the wait for model
instances, summed over all models of an ensemble. `compute_ms` is that of a request's whole batch in the model with the
most computing, which answers. HTTP is not included.
"""

from collections.abc import Mapping, Sequence
from typing import Any

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


Counters = Mapping[str, Mapping[str, int]]
"""A reading: the counters of each model by its name and version. Times are nanoseconds since the server's start."""


def read_counters(answer: Mapping[str, Any]) -> Counters:
    """Reads Triton's answer. Raises LookupError, TypeError or ValueError where it is none."""
    return {f"{model['name']}:{model.get('version', '')}": _counters(model) for model in answer["model_stats"]}


def _counters(model: Mapping[str, Any]) -> Mapping[str, int]:
    """Reads an item of `model_stats`. `executed` has each execution once, whatever its batch. An ensemble has none."""
    stats, batches = model["inference_stats"], model.get("batch_stats") or ()
    return {
        "requests": int(stats["success"]["count"]),
        "queue": int(stats["queue"]["ns"]),
        **{part: int(stats[f"compute_{part}"]["ns"]) for part in PARTS},
        "rows": int(model["inference_count"]),
        "executions": int(model["execution_count"]) if batches else 0,
        "executed": sum(int(batch[f"compute_{part}"]["ns"]) for batch in batches for part in PARTS),
    }


def answered(before: Counters, after: Counters) -> int:
    """Returns how many requests the model that answers has answered between two readings."""
    counted = _between(before, after)
    return _answering(counted)["requests"] if counted else 0


def server_times(before: Counters, after: Counters) -> ServerTimes | None:
    """Returns the means between two readings; None where nothing was answered, or the server started anew."""
    counted = _between(before, after)
    if not counted:
        return None
    answering, ran = _answering(counted), max(counted, key=lambda model: model["executed"])
    ns = answering["requests"] * NS_PER_MS
    return ServerTimes(
        queue_ms=sum(model["queue"] for model in counted) / ns,
        compute_ms=ComputeTimes(**{part: answering[part] / ns for part in PARTS}),
        requests=answering["requests"],
        rows_per_execution=ran["rows"] / ran["executions"] if ran["executions"] else None,
    )


def warm_up_s(counters: Counters) -> float:
    """Returns how long models ran their `model_warmup`, from the reading of a server that had no request yet."""
    return sum(model["executed"] for model in counters.values()) / 1e9


def _between(before: Counters, after: Counters) -> Sequence[Mapping[str, int]]:
    changes = [
        {key: count - before.get(name, {}).get(key, 0) for key, count in model.items()} for name, model in after.items()
    ]
    return [change for change in changes if change["requests"] > 0]


def _answering(counted: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    return max(counted, key=lambda model: sum(model[part] for part in PARTS))
