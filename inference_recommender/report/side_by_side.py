"""Two reports of one kind and workload, figure by figure: what `reports` shows where no statistics judge them. Pure.

Rows of two tables belong together where their table's name and their first cell are the same: a policy's name, a
load's, a configuration's. So do the first rows, whatever their names: they have what is judged, or is best. What only
one of the two has is not compared.
"""

from collections.abc import Iterator, Mapping

from inference_recommender.report.document import Report, Table, Value, table
from workloads import UsageError

FIGURES = (
    ("table", "of", ""),
    ("row", "row", ""),
    ("figure", "figure", ""),
    ("baseline", "baseline", ",.6g"),
    ("candidate", "candidate", ",.6g"),
    ("ratio", "candidate over baseline", ".3f"),
)
FACTS = (("fact", "fact", ""), ("baseline", "baseline", ""), ("candidate", "candidate", ""))
ALIKE = "fingerprint"
Row = Mapping[str, Value]


def side_by_side(baseline: Report, candidate: Report) -> Report:
    """Returns the comparison. Raises `UsageError` where the two are not of one kind and workload."""
    if (baseline.kind, baseline.workload) != (candidate.kind, candidate.workload):
        of = (
            f"{each.name} ({each.kind}, {each.workload or 'of an unknown workload'})" for each in (baseline, candidate)
        )
        raise UsageError(f"{' and '.join(of)} do not compare: take two of one kind and workload.")
    rows = [row for one, other in _pairs(baseline, candidate) for row in _figures(one, other)]
    facts: list[tuple[Value, ...]] = [
        (name, baseline.environment.get(name), candidate.environment.get(name))
        for name in dict.fromkeys([*baseline.environment, *candidate.environment])
        if baseline.environment.get(name) != candidate.environment.get(name)
    ]
    same = baseline.environment.get(ALIKE) == candidate.environment.get(ALIKE)
    decisions: list[tuple[Value, ...]] = [
        ("verdict", baseline.verdict, candidate.verdict),
        ("decision", baseline.decision, candidate.decision),
        ("asked", baseline.asked, candidate.asked),
    ]
    return Report(
        kind="comparison",
        name=f"{candidate.name} against {baseline.name}",
        workload=candidate.workload,
        asked=f"how {candidate.name} differs from {baseline.name}",
        verdict="unknown",
        decision=f"{candidate.name}: {candidate.decision}",
        cautions=()
        if same
        else ("The two differ in what they are of, or where they were measured: see below, before their figures.",),
        tables=(
            table("decisions", "Decisions", FACTS, decisions),
            table(
                "figures", "Figures that differ", FIGURES, rows, "No statistics judge them: a difference may be noise."
            ),
            table("facts", "What else differs", FACTS, facts, "" if facts else "Nothing."),
        ),
        not_tested=(),
        environment={"baseline": baseline.name, "candidate": candidate.name},
    )


def _pairs(baseline: Report, candidate: Report) -> Iterator[tuple[Table, Table]]:
    for one in baseline.tables:
        other = candidate.table(one.name)
        if other is not None and one.columns and not one.columns[0].spec:
            yield one, other


def _figures(one: Table, other: Table) -> Iterator[tuple[Value, ...]]:
    """Yields a row for each figure of which either has another value than the other."""
    for row, beside in _alike(one, other):
        was_named, now_named = (str(each[one.columns[0].name]) for each in (row, beside))
        name = was_named if was_named == now_named else f"{was_named} → {now_named}"
        for column in one.columns:
            was, now = row[column.name], beside.get(column.name)
            if column.spec and was != now and _is_number(was) and _is_number(now):
                ratio = float(now) / float(was) if was else None  # type: ignore[arg-type]
                yield one.title, name, column.title, was, now, ratio


def _alike(one: Table, other: Table) -> Iterator[tuple[Row, Row]]:
    key = one.columns[0].name
    rows = {row.get(key): row for row in other.rows}
    if one.rows and other.rows and one.rows[0][key] != other.rows[0][key]:
        yield one.rows[0], other.rows[0]
    for row in one.rows:
        if row[key] in rows:
            yield row, rows[row[key]]


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
