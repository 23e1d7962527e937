"""The report's section on queue time against compute time in Triton by load, with advice. Pure.

The advice is a rule of thumb on means of one configuration's probes: the lightest load, and the heaviest load within
the limit (or the lightest if none is).

1. If at the lightest load at least `DELAYED` of a request's time in Triton is queueing, and the batcher may delay
   requests (max_queue_delay), that delay is too long.
2. Else, if at the heavier load less than `WAITS` of the time is queueing, computing takes the time.
3. Else, if an execution there takes `SLOWED` times as long as at the lightest load with batches of about the same size,
   cores or GPU are exhausted: more model instances would slow one another down.
4. Else requests wait for a free model instance.
"""

from collections.abc import Sequence
from itertools import chain

from inference_recommender.capacity.probe import Probe
from inference_recommender.capacity.server_times import ServerTimes
from inference_recommender.measurement import Measurement
from inference_recommender.report.document import Plot, Table, table
from inference_recommender.report.plots import BLUE, GREEN, ORANGE, WIDE_IN, drawn, legend, new_figure
from workloads import Workload

DELAYED = 0.5
"""Queueing at a very light load comes from the batcher, which delays requests for others to join them."""
WAITS = 0.5
SLOWED, SAME_BATCH = 1.5, 1.2
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
USERS, ARRIVALS = "closed-loop users", "open arrivals"


def queue_table(workload: Workload, measured: Sequence[Measurement]) -> Table | None:
    """Returns the times in Triton by load, with advice as the note; None if no server reported them."""
    rows = list(chain.from_iterable(_rows(each) for each in measured))
    if not rows:
        return None
    several = sum(bool(_rows(each)) for each in measured) > 1
    advised = [(each, words) for each in measured if (words := advice(workload, each)) is not None]
    advice_lines = [f"{_name(each)}: {words}" if several else words for each, words in advised]
    heads = "Means per request inside Triton, from its counters. A request takes as long to compute as its batch."
    return table("queue", "Queue against compute", COLUMNS, rows, " ".join([heads, *advice_lines]), detail=True)


def advice(workload: Workload, measured: Measurement) -> str | None:
    """Returns the advice in a sentence; None if too little is known."""
    probes = _timed(measured)
    if not probes or measured.open_loop is None:
        return None
    light = probes[0]
    kept = [each for each in probes if each.latency_ms is not None and each.latency_ms <= measured.open_loop.limit_ms]
    heavy = kept[-1] if kept else light
    (_, alone), (rate, busy) = ((each.invocations_per_minute, each.server) for each in (light, heavy))
    assert alone is not None
    assert busy is not None
    total_ms = busy.queue_ms + busy.compute_ms.total
    at = f"At {rate:,.0f} invocations/min a request queues for {busy.queue_ms:.3g} of its {total_ms:.3g} ms in Triton"
    delay_ms = _delay_ms(workload, measured)
    if alone.waiting_share >= DELAYED and delay_ms:
        return (
            f"Even at {light.invocations_per_minute:,.0f} invocations/min a request queues for {alone.queue_ms:.3g} ms."
            f" Try a max_queue_delay_ms below {delay_ms:g}."
        )
    if busy.waiting_share < WAITS:
        return f"{at}. Computing takes the time: a faster model (target or precision) shortens it."
    slower = busy.compute_ms.total / max(alone.compute_ms.total, 1e-9)
    batches = (busy.rows_per_execution or 1.0) / (alone.rows_per_execution or 1.0)
    if light is not heavy and slower >= SLOWED and batches < SAME_BATCH:
        return (
            f"{at}, and computes {slower:.1f} times as long as at {light.invocations_per_minute:,.0f}. The machine is "
            "saturated: use a larger one or more of them. More model instances do not help."
        )
    return f"{at}. It waits for a free model instance: try more of them, or larger batches."


def queue_against_compute(measured: Sequence[Measurement]) -> Plot | None:
    """Draws queue and compute time by the rate of open arrivals, for the first configuration that has them."""
    probes = next((timed for each in measured if len(timed := _timed(each)) > 1), None)
    if probes is None:
        return None
    figure, axes = new_figure(WIDE_IN)
    rates = [each.invocations_per_minute for each in probes]
    times = [each.server for each in probes if each.server is not None]
    for label, colour, marker, values in (
        ("queue", ORANGE, "o", [each.queue_ms for each in times]),
        ("compute", BLUE, "s", [each.compute_ms.total for each in times]),
        ("total", GREEN, "D", [each.queue_ms + each.compute_ms.total for each in times]),
    ):
        axes.plot(rates, values, color=colour, marker=marker, markersize=4, linewidth=1.4, label=label)
    axes.set(xlabel="invocations per minute per instance", ylabel="mean in Triton, ms", xlim=(0, None), yscale="log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    legend(figure, axes, columns=3)
    return drawn(figure)


def _rows(measured: Measurement) -> list[tuple[str | int | float | None, ...]]:
    found: list[tuple[str, float | None, ServerTimes]] = []
    if (server := measured.server) is not None:
        found.append((USERS, None, server))
    found += [(ARRIVALS, each.invocations_per_minute, each.server) for each in _timed(measured) if each.server]
    return [
        (
            _name(measured),
            load,
            rate,
            server.queue_ms,
            server.compute_ms.input,
            server.compute_ms.infer,
            server.compute_ms.output,
            server.waiting_share,
            server.rows_per_execution,
            server.requests,
        )
        for load, rate, server in found
    ]


def _timed(measured: Measurement) -> list[Probe]:
    """Returns the probes with times of the server, the lightest load first."""
    probes = measured.open_loop.probes if measured.open_loop else ()
    return sorted((each for each in probes if each.server), key=lambda each: each.invocations_per_minute)


def _name(measured: Measurement) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in measured.environment.items())
    return " ".join(part for part in (measured.instance_type, measured.variant or "", settings) if part)


def _delay_ms(workload: Workload, measured: Measurement) -> float:
    name = measured.variant or workload.hosting.target
    return workload.variant(name).serving.max_queue_delay_ms if name in workload.deployables else 0.0
