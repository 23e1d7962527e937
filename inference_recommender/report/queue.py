"""The report's table of queue time against compute time in Triton by load; docs/capacity.md has the advice. Pure."""

from collections.abc import Sequence

from inference_recommender.capacity.server_times import ServerTimes
from inference_recommender.measurement import Measurement
from inference_recommender.report.document import Table, Value, table

COLUMNS = (
    ("configuration", "configuration", ""),
    ("load", "load", ""),
    ("invocations_per_minute", "invocations/min per instance", ",.0f"),
    ("queue_ms", "queue, ms", ",.3g"),
    ("input_ms", "inputs, ms", ",.3g"),
    ("infer_ms", "compute, ms", ",.3g"),
    ("output_ms", "outputs, ms", ",.3g"),
    ("waiting_share", "queueing", ".0%"),
    ("rows_per_execution", "rows in a batch", ",.3g"),
    ("requests", "requests", ",d"),
)
NOTE = "Means per request inside Triton. A request takes as long to compute as its batch. Advice: docs/capacity.md."


def queue_table(measured: Sequence[Measurement]) -> Table | None:
    """Returns the times in Triton by load, the lightest first; None if no server reported them."""
    rows: list[tuple[Value, ...]] = []
    for each in measured:
        settings = ", ".join(f"{key}={value}" for key, value in each.environment.items())
        name = " ".join(part for part in (each.instance_type, each.variant or "", settings) if part)
        if each.server is not None:
            rows.append((name, "closed-loop users", None, *_times(each.server)))
        probes = each.open_loop.probes if each.open_loop else ()
        for probe in sorted(probes, key=lambda probe: probe.invocations_per_minute):
            if probe.server is not None:
                rows.append((name, "open arrivals", probe.invocations_per_minute, *_times(probe.server)))
    return table("queue", "Queue against compute", COLUMNS, rows, NOTE, detail=True) if rows else None


def _times(server: ServerTimes) -> tuple[float | None, ...]:
    compute = server.compute_ms
    shares = (server.waiting_share, server.rows_per_execution, server.requests)
    return (server.queue_ms, compute.input, compute.infer, compute.output, *shares)
