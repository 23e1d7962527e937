"""The report of a simulation: the decision first, the worst day under each policy, and all of it in one page."""

import json
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from inference_recommender.__main__ import main
from inference_recommender.cli.report import page_text, report
from inference_recommender.report.document import Report
from inference_recommender.report.markdown import markdown
from tests.inference_recommender.cli.test_simulate_command import CHOSEN, OBJECTIVE, capacity_json
from tests.inference_recommender.measure.prove.recommended import a_recommendation

TRACE = "".join(f"{60 * minute},{3000 + (5000 if 30 <= minute < 40 else 0)}\n" for minute in range(60))
"""An hour with a rush of ten minutes, which is over before an instance has started."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A simulation of a policy that was asked for."""
    folder = tmp_path_factory.mktemp("simulation")
    (folder / "rush.csv").write_text(TRACE, "utf-8")
    file = folder / "recommendation.json"
    a_recommendation(CHOSEN, target="tensorrt", objective=OBJECTIVE).write_json(file)
    asked = ("--target-invocations", "24000", "--provisioning-s", "200", "--seeds", "2", "--json")
    main(
        [
            "simulate",
            "spellcheck",
            "--trace",
            str(folder / "rush.csv"),
            "--from",
            str(file),
            "--runs",
            str(folder / "runs"),
            *asked,
        ]
    )
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.fixture(scope="module")
def text(simulated: Path) -> str:
    return page_text(simulated)


def changed(run: Path, folder: Path, **members: Any) -> Path:
    """Returns a copy of a simulation with other members."""
    copy = folder / run.name
    copy.mkdir()
    kept = json.loads((run / "simulation.json").read_text("utf-8"))
    (copy / "simulation.json").write_text(json.dumps({**kept, **members}), "utf-8")
    (copy / "workload.json").write_bytes((run / "workload.json").read_bytes())
    return copy


def rows(found: Report, name: str) -> list[dict[str, Any]]:
    table = found.table(name)
    assert table is not None
    return [dict(row) for row in table.rows]


def test_the_document_has_the_decision_the_policies_and_what_was_assumed(simulated: Path) -> None:
    found = report(simulated)
    assert (found.kind, found.workload, found.verdict) == ("simulation", "spellcheck", "missed")
    assert found.decision == (
        "Do not rely on the policy that was asked for, 2 to 20, 24,000/min each, cooldowns of 300 s out and 600 s in: "
        "2 of 2 seeds had more than 5 minutes over the objective."
    )
    policies = rows(found, "policies")
    assert [row["policy"] for row in policies] == [
        "asked for",
        "as recommended now",
        "fixed fleet",
        "ideal (knows the future)",
    ]
    assert policies[-1]["instance_hours"] < policies[0]["instance_hours"]
    assert rows(found, "policy") == [{"key": "target_invocations_per_instance", "todays": "15,000", "chosen": "24,000"}]
    times = {row["what"]: (row["value"], row["known_by"]) for row in rows(found, "assumptions")}
    assert times["from the request for an instance to its container, s, the median"] == (200.0, "--provisioning-s")
    assert times["from there to answers within the objective, s"] == (60.0, "assumed")
    assert "the capacity provider's warm-up of an instance, s" not in times
    assert found.environment["trace"] == "rush.csv"
    assert len(found.environment["sha256 of the trace"]) == 64
    assert found.environment["trace begins"] == "1970-01-01T00:00:00+00:00"
    assert any(each.startswith("Extrapolated: for ") for each in found.cautions)
    assert found.not_tested[0] == ("No endpoint of AWS has scaled with this policy. Its times are assumptions.")


def test_each_verdict_has_its_decision(simulated: Path, tmp_path: Path) -> None:
    kept = json.loads((simulated / "simulation.json").read_text("utf-8"))
    (asked, today, never) = kept["policies"]
    chosen = {**asked, "name": "chosen"}
    searched = {"policies_tried": 91, "confirmed_on": {"seeds": 898, "failed": 2}}
    cases: dict[str, dict[str, Any]] = {
        "Deploy 2 to 20, 24,000/min each, ": {"safe": True, **searched, "policies": [chosen, today, never]},
        "Keep the recommended policy, 2 to 20, 15,000/min each, ": {
            "safe": True,
            **searched,
            "policies": [today, never],
        },
        "Do not deploy: no policy that was tried ": {"safe": False, **searched},
        "Deploy the policy that was asked for, 2 to 20, ": {"safe": True},
        "No conclusion: the simulation was interrupted.": {"complete": False, "safe": False},
    }
    for number, (begins, members) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert report(changed(simulated, folder, **members)).decision.startswith(begins)


def test_the_markdown_begins_with_the_decision_and_folds_what_is_long(simulated: Path) -> None:
    text = markdown(report(simulated))
    assert text.startswith("**Do not rely on the policy that was asked for, 2 to 20, 24,000/min each")
    assert "| asked for | 2 to 20, 24,000/min each, cooldowns of 300 s out and 600 s in |" in text
    assert "<details><summary>The worst day under each policy</summary>" in text
    assert "<details><summary>Assumed</summary>" in text
    assert "### Proof" not in text
    assert len(text) < 20_000, "GitHub takes 65,536 characters of a pull request's body"


def test_the_page_has_every_policy_in_it_and_shows_the_judged_one(text: str) -> None:
    assert len(text) < 2_000_000
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    slider = re.search(r'<input type="range" id="policy" min="0" max="(\d)" step="1" value="(\d)"', text)
    assert slider is not None
    assert slider.groups() == ("2", "1"), "the one with the fewest instance hours is the first"
    assert '<label for="policy">' in text
    blocks = re.findall(r'<div class="policy" data-policy="(\d)" data-says="([^"]+)"( hidden)?>', text)
    assert [(number, bool(hidden)) for number, _, hidden in blocks] == [("0", True), ("1", False), ("2", True)]
    assert [says.partition(":")[0] for _, says, _ in blocks] == ["fixed fleet", "asked for", "as recommended now"]
    groups = re.findall(r'<g data-policy="(\d)"( hidden)?>', text)
    assert {number for number, hidden in groups if not hidden} == {"1"}
    assert {number for number, hidden in groups if hidden} == {"0", "2"}
    assert 'id="policy-' not in text.replace('id="policy"', "")
    assert "target_invocations_per_instance 15,000 → 24,000" in text


def test_each_figure_of_the_day_has_the_lines_of_all_policies_as_its_data(text: str) -> None:
    links = re.findall(r'<a download="([^"]+)" href="data:text/csv;charset=utf-8,([^"]+)"', text)
    files = {name: unquote(data).splitlines() for name, data in links}
    assert list(files) == [
        "load.csv",
        "fleet.csv",
        "latency.csv",
        "late-requests.csv",
        "cost.csv",
        "cost-against-risk.csv",
    ]
    assert files["fleet.csv"][0] == (
        "time,ideal,1 fixed fleet: wanted,1 fixed fleet: serving,2 asked for: wanted,2 asked for: serving,"
        "3 as recommended now: wanted,3 as recommended now: serving"
    )
    assert files["fleet.csv"][1].startswith("1970-01-01T00:00:00Z,")
    assert len(files["fleet.csv"]) == 1 + 60
    assert float(files["cost.csv"][-1].split(",")[2]) == pytest.approx(14.08, abs=0.01)


def test_every_colour_is_one_that_the_page_sets_for_light_and_dark(text: str) -> None:
    style, _, body = text.partition("</style>")
    assert not re.findall(r"(?:fill|stroke): ?(#[0-9a-f]+)", body)
    for name in set(re.findall(r"var\((--[a-z-]+)\)", body)):
        assert style.count(f"{name}:") == 2, name


@pytest.mark.slow
def test_a_simulation_of_one_policy_has_no_slider(simulated: Path, tmp_path: Path) -> None:
    kept = json.loads((simulated / "simulation.json").read_text("utf-8"))
    text = page_text(changed(simulated, tmp_path, policies=kept["policies"][:1], price_per_hour_usd=None))
    assert '<input type="range"' not in text
    assert "instance hours since the day began" in text
    assert "The price of an instance is not known" in text


def test_a_damaged_simulation_is_named(simulated: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = changed(simulated, tmp_path, policies=None)
    assert main(["report", str(copy)]) == 2
    assert f"{copy / 'simulation.json'}: cannot be read: " in " ".join(capsys.readouterr().err.split())


def test_a_measurement_is_simulated_without_a_recommendation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rush.csv").write_text(TRACE, "utf-8")
    options = ("--from", str(capacity_json(tmp_path)), "--runs", str(tmp_path / "runs"), "--seeds", "1", "--json")
    main(["simulate", "spellcheck", "--trace", str(tmp_path / "rush.csv"), *options])
    capsys.readouterr()
    (run,) = (tmp_path / "runs").iterdir()
    assert report(run).environment["measured on"] == "not known"
