"""The report of a survey of lengths, as `report` draws it from its folder. Pure."""

from inference_recommender.lengths.result import LengthSurface, sentences
from inference_recommender.report.document import Report, Table, objective_text, table
from inference_recommender.report.inputs import FolderInputs
from inference_recommender.report.lengths import shifts_table
from inference_recommender.report.sections import generator_table, lengths_table
from workloads import LengthShift, Workload

POINTS = (
    ("input_tokens", "input tokens", "d"),
    ("output_tokens", "output tokens", ",.3g"),
    ("requests", "requests", ",d"),
    ("p50_ms", "P50, ms", ",.4g"),
    ("p99_ms", "P99, ms", ",.4g"),
)


def lengths_report(name: str, surface: LengthSurface, workload: Workload, found: FolderInputs) -> Report:
    """Returns the report of a survey: where the lengths shift first, then what was measured."""
    origin, shifts = surface.origin, surface.lengths.shifts
    tables = (
        shifts_table(surface.lengths),
        lengths_table(surface.lengths),
        _measured(surface, under_load=False),
        _measured(surface, under_load=True),
        _by_users(surface, workload.latency_objective.percentile),
        generator_table(found),
    )
    return Report(
        kind="lengths",
        name=name,
        workload=surface.workload,
        description=workload.description,
        objective=objective_text(workload.latency_objective),
        verdict="missed" if shifts[0].misses_unloaded else "met",
        decision=decision(shifts),
        cautions=surface.cautions,
        tables=tuple(each for each in tables if each is not None),
        not_tested=(
            "The capacity for other lengths is estimated from closed-loop users: no search was made with them.",
        ),
        environment={
            "asked": origin.asked,
            "fingerprint": found.fingerprint(origin.archive_sha256 or "not known", origin.machine, origin.measured_on),
            "measured on": f"{origin.measured_on}: {origin.machine}",
            "measured at": origin.measured_at,
            "model archive": origin.archive_sha256 or "not known",
            "run": origin.run,
        },
    )


def decision(shifts: tuple[LengthShift, ...]) -> str:
    """Returns what longer payloads would cost, in a sentence."""
    worst = min(shifts, key=lambda each: each.scale_within_limit)
    said = f"Where payloads are {worst.name}, an instance bears at most {worst.scale_within_limit:.2f} times as many"
    if worst.misses_unloaded:
        return f"{said}: they miss the objective without any load."
    return f"{said}; size the fleet anew before the lengths shift so far."


def _measured(surface: LengthSurface, *, under_load: bool) -> Table:
    points = surface.points_under_load if under_load else surface.points
    rows = [tuple(getattr(each, key) for key, _, _ in POINTS) for each in points]
    if under_load:
        title = f"Latency by length, beside {surface.load_invocations_per_minute:,.0f} payloads/min"
        return table("lengths-under-load", title, POINTS, rows, "Answers as the model gives them.")
    return table("lengths-alone", "Latency by length, each request alone", POINTS, rows, " ".join(sentences(surface)))


def _by_users(surface: LengthSurface, percentile: str) -> Table:
    columns = (
        ("payloads", "payloads", ""),
        ("users", "users", "d"),
        ("invocations_per_minute", "invocations/min", ",.0f"),
        ("p50_ms", "P50, ms", ",.4g"),
        ("latency_ms", f"{percentile}, ms", ",.4g"),
    )
    rows = [
        (kind.name, each.users, each.invocations_per_minute, each.p50_ms, each.latency_ms)
        for kind in surface.kinds
        for each in kind.levels
    ]
    return table("lengths-by-users", "Throughput and latency by closed-loop users", columns, rows)
