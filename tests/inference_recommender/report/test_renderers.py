"""One report, four renderings: terminal text, page, Markdown and JSON."""

import io
import json
import re

import pytest
from rich.console import Console

from inference_recommender.report.document import Highlight, Plot, Report, table
from inference_recommender.report.markdown import markdown
from inference_recommender.report.page import page
from inference_recommender.report.text import show

REPORT = Report(
    kind="run",
    name="job-1",
    workload="spellcheck",
    description="Corrects queries.",
    objective="P99 ≤ 50 ms at 30,000 invocations/min",
    verdict="met",
    decision="Deploy <b>it</b> | *now*",
    highlights=(Highlight(label="P99 (limit 50 ms)", value="31 ms"),),
    cautions=("One.", "Two.", "Three.", "Four."),
    tables=(
        table(
            "candidates",
            "Candidates",
            (("type", "instance type", ""), ("rate", "capacity /min", ",.0f"), ("met", "met", "s")),
            [("ml.c5.xlarge", 9600.4, True), ("[bold]\x1b[31m", None, False)],
            "Rates are per instance.",
        ),
        table("raw", "Raw", (("max_batch_size", "max_batch_size", ""),), [("a|b\n</details>",), (None,)], detail=True),
    ),
    notes=("ml.c5.xlarge: 95 % interval: 9,000 to 10,500.",),
    patch="[serving]\nmax_batch_size = 8\n",
    not_tested=("Other payloads.",),
    environment={"run": "a`b"},
)


def test_the_terminal_has_the_main_tables_then_a_line_per_caveat_then_the_decision() -> None:
    shown = io.StringIO()
    show(REPORT, Console(file=shown, width=80))
    lines = [line.rstrip() for line in shown.getvalue().splitlines()]
    assert lines == [
        "spellcheck: P99 ≤ 50 ms at 30,000 invocations/min",
        "",
        " instance type   capacity /min  met",
        " ──────────────────────────────────",
        " ml.c5.xlarge            9,600  yes",
        " [bold]\\x1b[31m              –   no",
        "",
        "Rates are per instance.",
        "ml.c5.xlarge: 95 % interval: 9,000 to 10,500.",
        "Caution: One.",
        "Caution: Two.",
        "Caution: Three.",
        "Caution: Four.",
        "For workload.toml:",
        "[serving]",
        "max_batch_size = 8",
        "Deploy <b>it</b> | *now*",
    ]


def test_markdown_has_the_decision_first_folds_details_and_escapes_markup() -> None:
    text = markdown(REPORT)
    assert text.startswith("**Deploy \\<b\\>it\\</b\\> \\| \\*now\\***\n\nObjective: P99 ≤ 50 ms")
    assert "- P99 (limit 50 ms): 31 ms\n" in text
    assert "> One.\n" in text
    assert "| instance type | capacity /min | met |\n| :-- | --: | --: |\n| ml.c5.xlarge | 9,600 | yes |" in text
    assert "<details><summary>Raw</summary>\n\n| max_batch_size |\n| :-- |\n| a\\|b \\</details\\> |\n| – |" in text
    assert "```toml\n[serving]\nmax_batch_size = 8\n```" in text
    assert "### Proof\n\nNone was made." in text
    assert "### Not tested\n\n- Other payloads." in text
    assert "- run: `` a`b ``" in text


def test_json_has_figures_as_numbers_and_null_for_unknown_ones() -> None:
    document = json.loads(REPORT.model_dump_json())
    assert document["tables"][0]["rows"][1] == {"type": "[bold]\x1b[31m", "rate": None, "met": False}
    assert Report.model_validate_json(REPORT.model_dump_json()).decision == REPORT.decision


@pytest.fixture(scope="module")
def text() -> str:
    plot = Plot(svg='<svg><path stroke="var(--plot-blue)"/></svg>', csv="x,y\n1,2\n", wide=True)
    return page(REPORT, {"Latency against rate": plot})


def test_the_first_screen_has_decision_objective_figures_and_three_cautions(text: str) -> None:
    first = text[text.index("<section") : text.index("</section>")]
    assert first.startswith('<section class="card decision met">\n  <h2>Deploy &lt;b&gt;it&lt;/b&gt; | *now*</h2>')
    assert "Objective: P99 ≤ 50 ms at 30,000 invocations/min." in first
    assert "<b>31 ms</b><span>P99 (limit 50 ms)</span>" in first
    assert re.findall(r'<p class="caution">(.*?)</p>', first) == ["One.", "Two.", "Three."]
    assert "<h2>More cautions</h2>\n  <ul><li>Four.</li></ul>" in text


def test_the_page_is_self_contained_and_each_plot_has_its_data_in_a_link(text: str) -> None:
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:" in text
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", text.partition("<script>")[2])
    assert '<a download="latency-against-rate.csv" href="data:text/csv;charset=utf-8,x%2Cy%0A1%2C2%0A">' in text


def test_every_colour_of_the_page_has_a_light_and_a_dark_value(text: str) -> None:
    style, _, body = text.partition("</style>")
    assert not re.findall(r"(?:fill|stroke): ?(#[0-9a-f]+)", body)
    for name in set(re.findall(r"var\((--[a-z-]+)\)", body)):
        assert style.count(f"{name}:") == 2, name
