"""The report's section on waiting against computing in Triton, by load, and what that advises. Pure.

The advice is a rule of thumb on means, for the probes of one configuration: the lightest load that was probed, and the
heaviest whose latency kept the limit, or the lightest where none did.

1. Where even at the lightest load `DELAYED` of a request's time in Triton or more is waiting, and the batcher may hold
   requests back (max_queue_delay), that delay is too long.
2. Else, where at the heavier load less than `WAITS` of the time is waiting, computing is what takes time.
3. Else, where an execution there computes `SLOWED` times as long as at the lightest load with batches hardly larger,
   what computes has no cores or GPU left: more copies of the model would slow one another down.
4. Else requests wait for a free copy of the model.
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
"""A queue at hardly any load is the batcher's own: requests are held back for others to join them."""
WAITS = 0.5
SLOWED, SAME_BATCH = 1.5, 1.2
COLUMNS = (
    ("configuration", "configuration", ""),
    ("load", "load", ""),
    ("invocations_per_minute", "invocations/min and instance", ",.0f"),
    ("queue_ms", "waiting, ms", ",.3g"),
    ("input_ms", "placing inputs, ms", ",.3g"),
    ("infer_ms", "running, ms", ",.3g"),
    ("output_ms", "taking outputs, ms", ",.3g"),
    ("waiting_share", "waiting", ".0%"),
    ("rows_per_execution", "rows in a batch", ",.3g"),
    ("requests", "requests", ",d"),
)
USERS, ARRIVALS = "closed-loop users", "open arrivals"


def queue_table(workload: Workload, measured: Sequence[Measurement]) -> Table | None:
    """Returns the times in Triton by load, and its advice for each configuration as the note; None where none tells."""
    rows = list(chain.from_iterable(_rows(each) for each in measured))
    if not rows:
        return None
    several = sum(bool(_rows(each)) for each in measured) > 1
    advised = [(each, words) for each in measured if (words := advice(workload, each)) is not None]
    said = [f"{_name(each)}: {words}" if several else words for each, words in advised]
    heads = "Means of a request inside Triton, by its own counters; a request computes as long as the batch it is in."
    return table("queue", "Queue against compute", COLUMNS, rows, " ".join([heads, *said]), detail=True)


def advice(workload: Workload, measured: Measurement) -> str | None:
    """Returns what the times advise, in a sentence; None where too little is known."""
    probes = _told(measured)
    if not probes or measured.open_loop is None:
        return None
    light = probes[0]
    kept = [each for each in probes if each.latency_ms is not None and each.latency_ms <= measured.open_loop.limit_ms]
    heavy = kept[-1] if kept else light
    (_, alone), (rate, busy) = ((each.invocations_per_minute, each.server) for each in (light, heavy))
    assert alone is not None
    assert busy is not None
    total_ms = busy.queue_ms + busy.compute_ms.total
    at = f"At {rate:,.0f} invocations/min a request waits {busy.queue_ms:.3g} of its {total_ms:.3g} ms in Triton"
    delay_ms = _delay_ms(workload, measured)
    if alone.waiting_share >= DELAYED and delay_ms:
        return (
            f"Even at {light.invocations_per_minute:,.0f} invocations/min a request waits {alone.queue_ms:.3g} ms: try "
            f"a smaller max_queue_delay_ms than {delay_ms:g}."
        )
    if busy.waiting_share < WAITS:
        return f"{at}: computing takes the time, so a faster model (its target or precision) is what shortens it."
    slower = busy.compute_ms.total / max(alone.compute_ms.total, 1e-9)
    batches = (busy.rows_per_execution or 1.0) / (alone.rows_per_execution or 1.0)
    if light is not heavy and slower >= SLOWED and batches < SAME_BATCH:
        return (
            f"{at}, and computes {slower:.1f} times as long as at {light.invocations_per_minute:,.0f}: the machine has "
            "nothing left, so a larger one or more of them help, and more instances of the model do not."
        )
    return f"{at}: it waits for a free instance of the model, so try more of them, or larger batches."


def queue_against_compute(measured: Sequence[Measurement]) -> Plot | None:
    """Draws waiting and computing by the rate of open arrivals, for the first configuration whose server tells them."""
    probes = next((told for each in measured if len(told := _told(each)) > 1), None)
    if probes is None:
        return None
    figure, axes = new_figure(WIDE_IN)
    rates = [each.invocations_per_minute for each in probes]
    times = [each.server for each in probes if each.server is not None]
    for label, colour, marker, values in (
        ("waiting", ORANGE, "o", [each.queue_ms for each in times]),
        ("computing", BLUE, "s", [each.compute_ms.total for each in times]),
        ("together", GREEN, "D", [each.queue_ms + each.compute_ms.total for each in times]),
    ):
        axes.plot(rates, values, color=colour, marker=marker, markersize=4, linewidth=1.4, label=label)
    axes.set(xlabel="invocations per minute and instance", ylabel="mean in Triton, ms", xlim=(0, None), yscale="log")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:g}")
    legend(figure, axes, columns=3)
    return drawn(figure)


def _rows(measured: Measurement) -> list[tuple[str | int | float | None, ...]]:
    found: list[tuple[str, float | None, ServerTimes]] = []
    if (server := measured.server) is not None:
        found.append((USERS, None, server))
    found += [(ARRIVALS, each.invocations_per_minute, each.server) for each in _told(measured) if each.server]
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


def _told(measured: Measurement) -> list[Probe]:
    """Returns the probes whose server told its times, the lightest load first."""
    probes = measured.open_loop.probes if measured.open_loop else ()
    return sorted((each for each in probes if each.server), key=lambda each: each.invocations_per_minute)


def _name(measured: Measurement) -> str:
    settings = ", ".join(f"{key}={value}" for key, value in measured.environment.items())
    return " ".join(part for part in (measured.instance_type, measured.variant or "", settings) if part)


def _delay_ms(workload: Workload, measured: Measurement) -> float:
    name = measured.variant or workload.hosting.target
    return workload.variant(name).serving.max_queue_delay_ms if name in workload.deployables else 0.0
