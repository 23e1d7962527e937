"""The report's section on cold start: the stages of a new server's start, and what they add up to. Pure."""

from collections.abc import Sequence

from inference_recommender.report.document import Table, table
from workloads import ColdStart, Recommendation

STAGES = (
    ("provisioning_s", "provisioning: instance, image, archive"),
    ("fetch_s", "archive fetched"),
    ("unpack_s", "archive unpacked"),
    ("start_s", "server started"),
    ("load_s", "models loaded"),
    ("warm_up_s", "models warmed up"),
    ("first_answer_s", "first answer within the objective"),
    ("total_s", "together, without provisioning"),
)
"""The fields of `ColdStart` in the order in which they follow one another, and a name of each."""
COLUMNS = (
    ("stage", "stage", ""),
    ("seconds", "median, s", ".3f"),
    ("shortest_s", "shortest, s", ".3f"),
    ("longest_s", "longest, s", ".3f"),
)


def cold_start_table(recommendation: Recommendation) -> Table | None:
    """Returns the stages of a start with their medians; None where none was measured."""
    told = recommendation.cold_start
    return None if told is None else table("cold-start", "Cold start", COLUMNS, stage_rows(told), in_words(told))


def stage_rows(told: ColdStart) -> Sequence[tuple[str, float | None, float | None, float | None]]:
    """Returns a row for each stage: its name, the median, the shortest and the longest, each None where not known."""
    return [(name, getattr(told, key), *told.ranges_s.get(key, (None, None))) for key, name in STAGES]


def in_words(told: ColdStart) -> str:
    """Returns what the figures say and what they do not."""
    starts = f"{told.starts} start{'s' * (told.starts != 1)} of {told.instance_type} on {told.machine}"
    said = [
        f"No answer within the objective was timed in {starts}."
        if told.total_s is None
        else f"A new server answers within the objective after {told.total_s:.3g} s: {starts}."
    ]
    if told.warm_up_s is None and told.load_s is not None:
        said.append("The models' loading has their warm-up in it: the log is not verbose, and no counters were asked.")
    if told.measured_on == "local":
        said.append("An instance's own provisioning is not in it, and the archive came from this machine's memory.")
    elif told.fetch_s is None:
        said.append("SageMaker does not tell apart how the instance, the image and the archive came.")
    return " ".join(said)
