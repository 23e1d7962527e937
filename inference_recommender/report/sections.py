"""Tables and sentences that reports of several kinds share. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from inference_recommender.capacity.server_times import ServerTimes
from inference_recommender.capacity.statistics import MAX_CPU_SHARE, MAX_LAG_MS
from inference_recommender.measurement import Measurement
from inference_recommender.report.candidates import UNKNOWN
from inference_recommender.report.document import Highlight, Table, table
from inference_recommender.report.inputs import FolderInputs
from workloads import Candidate, ColdStart, LatencyObjective, Proof

OTHER_PAYLOADS = "Payloads other than those in payloads.jsonl."
COLD_START = "Cold start: the time until a new instance answers within the objective."
CHANGING_TRAFFIC = "Scaling under changing traffic. The command `simulate` estimates it."

STAGES = (
    ("provisioning_s", "provisioning: instance, image, archive"),
    ("fetch_s", "archive fetched"),
    ("unpack_s", "archive unpacked"),
    ("start_s", "server started"),
    ("load_s", "models loaded"),
    ("warm_up_s", "models warmed up"),
    ("first_answer_s", "first answer within the objective"),
    ("total_s", "total, without provisioning"),
)
"""The fields of `ColdStart` in their order of time, and a name of each."""
STAGE_COLUMNS = (
    ("stage", "stage", ""),
    ("seconds", "median, s", ".3f"),
    ("shortest_s", "shortest, s", ".3f"),
    ("longest_s", "longest, s", ".3f"),
)
GENERATOR_COLUMNS = (("figure", "worst of all probes", ""), ("worst", "value", ".3g"), ("limit", "limit", ".3g"))
QUEUE_COLUMNS = (
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
SIZE_COLUMNS = (
    ("bytes_at_most", "bytes, at most", ",d"),
    ("requests", "requests", ",d"),
    ("p50_ms", "P50, ms", ",.3g"),
    ("p99_ms", "P99, ms", ",.3g"),
)
SIZE_NOTE = "A batch takes as long as its longest row. If short requests take as long as long ones, they wait for them."
QUEUE_NOTE = (
    "Means per request inside Triton. A request takes as long to compute as its batch. Advice: docs/capacity.md."
)


def present(tables: Iterable[Table | None]) -> tuple[Table, ...]:
    """Returns the tables that have something to show."""
    return tuple(each for each in tables if each is not None)


def fleet_highlights(chosen: Candidate, objective: LatencyObjective, proof: Proof | None = None) -> Iterator[Highlight]:
    """Yields the figures of a report's first screen: the fleet, latency against its limit, capacity, cost, scaling."""
    yield Highlight(label="initial fleet", value=f"{chosen.instance_count} × {chosen.title}")
    limit = f"(limit {objective.model_latency_ms:g} ms)"
    if proof is not None and proof.latency_ms is not None:
        yield Highlight(label=f"{proof.percentile} in the proof {limit}", value=f"{proof.latency_ms:,.4g} ms")
    elif chosen.capacity_basis == "open-loop" and chosen.objective_latency_ms is not None:
        label = f"{objective.percentile} at capacity {limit}"
        yield Highlight(label=label, value=f"{chosen.objective_latency_ms:,.4g} ms")
    if (rate := chosen.max_invocations_per_minute) is not None:
        label = f"capacity of an instance, {chosen.capacity_basis} {limit}"
        yield Highlight(label=label, value=f"{rate:,.0f}/min")
    for label, cost in (
        ("cost per hour", chosen.cost_per_hour_usd),
        ("cost per million", chosen.cost_per_million_invocations_usd),
    ):
        yield Highlight(label=label, value=UNKNOWN if cost is None else f"${cost:,.2f}")
    if scaling := chosen.autoscaling:
        yield Highlight(label="instances, min to max", value=f"{scaling.min_capacity} to {scaling.max_capacity}")
        target = f"{scaling.target_invocations_per_instance:,.0f}/min"
        yield Highlight(label="scaling target per instance", value=target)


def cold_start_table(cold_start: ColdStart | None, *, detail: bool = True) -> Table | None:
    """Returns the stages of a start with their medians; None if none was measured."""
    if cold_start is None:
        return None
    rows = [(name, getattr(cold_start, key), *cold_start.ranges_s.get(key, (None, None))) for key, name in STAGES]
    return table("cold-start", "Cold start", STAGE_COLUMNS, rows, cold_start_text(cold_start), detail=detail)


def cold_start_text(cold_start: ColdStart) -> str:
    """Returns the total of a start and what it does not include."""
    starts = f"{cold_start.starts} start{'s' * (cold_start.starts != 1)} of {cold_start.instance_type}"
    sentences = [
        f"No answer within the objective in {starts} on {cold_start.machine}."
        if cold_start.total_s is None
        else f"A new server answers within the objective after {cold_start.total_s:.3g} s: {starts} on "
        f"{cold_start.machine}."
    ]
    if cold_start.warm_up_s is None and cold_start.load_s is not None:
        sentences.append("Loading includes the models' warm-up, because the server's log is not verbose.")
    if cold_start.measured_on == "local":
        sentences.append("Provisioning is not included, and the archive came from this machine's memory.")
    elif cold_start.fetch_s is None:
        sentences.append("SageMaker does not report instance, image and archive separately.")
    return " ".join(sentences)


def generator_table(inputs: FolderInputs) -> Table | None:
    """Returns how close the generators came to the limits at which a run is invalid; None without summaries."""
    if not inputs.generators:
        return None
    watches = [each.generator for each in inputs.generators]
    rows = [
        ("CPU time, share of a core", max(each.cpu_share for each in watches), MAX_CPU_SHARE),
        ("clock lag at P90, ms", max(each.lag_ms for each in watches), MAX_LAG_MS),
    ]
    requests, errors = (sum(getattr(each, name) for each in inputs.generators) for name in ("invocations", "errors"))
    probes = f"{len(watches)} probe{'s' * (len(watches) != 1)}"
    note = f"{probes}, {requests:,} requests, {errors:,} failed. A run above a limit is invalid."
    return table("generator", "Load generator", GENERATOR_COLUMNS, rows, note, detail=True)


def sizes_table(inputs: FolderInputs) -> Table | None:
    """Returns the latency by size of the request; None if all requests have one size."""
    rows, title = list(map(dict, inputs.sizes)), "Latency by size of the request"
    return table("sizes", title, SIZE_COLUMNS, rows, SIZE_NOTE, detail=True) if rows else None


def queue_table(measured: Sequence[Measurement]) -> Table | None:
    """Returns the times in Triton by load, the lightest first; None if no server reported them."""
    rows: list[dict[str, Any]] = []
    for each in measured:
        name = each.title
        if each.server is not None:
            rows.append({"configuration": name, "load": "closed-loop users", **_times(each.server)})
        probes = each.open_loop.probes if each.open_loop else ()
        for probe in sorted(probes, key=lambda probe: probe.invocations_per_minute):
            if probe.server is not None:
                rows.append({**dict(probe), "configuration": name, "load": "open arrivals", **_times(probe.server)})
    return table("queue", "Queue against compute", QUEUE_COLUMNS, rows, QUEUE_NOTE, detail=True) if rows else None


def _times(server: ServerTimes) -> dict[str, Any]:
    compute = {f"{part}_ms": value for part, value in server.compute_ms}
    return {**dict(server), **compute, "waiting_share": server.waiting_share}
