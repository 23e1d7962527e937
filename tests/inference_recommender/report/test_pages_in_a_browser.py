"""Pages in a headless Chromium: the slider moves the figures, tables sort, files download, and pages fit a phone."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.cli.folder_report import write_index, write_page
from inference_recommender.run_folder import RunFolder
from tests.inference_recommender.report.browser import CHROMIUM, DESKTOP, PHONE, Browser, browser

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]

SHOWN = """(() => {
  const seen = each => each.getClientRects().length > 0;
  const blocks = [...document.querySelectorAll(".policy")].filter(seen);
  const of = [...document.querySelectorAll("svg [data-policy]")];
  const drawn = of.filter(each => getComputedStyle(each).display !== "none");
  const slider = document.getElementById("policy");
  return {
    blocks: blocks.map(each => each.dataset.policy),
    figures: blocks.map(each => each.querySelector(".figures").innerText),
    drawn: [...new Set(drawn.map(each => each.dataset.policy))],
    lines: drawn.map(each => each.querySelector("path").getAttribute("d")),
    plots: [...document.querySelectorAll(".plot svg")].map(svg => svg.getBoundingClientRect().height > 100),
    slider: seen(slider), value: slider.value, says: slider.getAttribute("aria-valuetext"),
    fits: document.documentElement.scrollWidth <= innerWidth, width: innerWidth,
    ink: getComputedStyle(document.body).color, paper: getComputedStyle(document.body).backgroundColor,
  };
})()"""
FILES = """(async () => {
  const blobs = [], names = [], make = URL.createObjectURL;
  URL.createObjectURL = blob => { blobs.push(blob); return make.call(URL, blob) };
  HTMLAnchorElement.prototype.click = function () { names.push(this.download) };
  const buttons = [...document.querySelectorAll(".downloads button")];
  for (const button of buttons) button.click();
  while (blobs.length < buttons.length) await new Promise(go => setTimeout(go, 50));
  const told = async blob => blob.type === "image/png" ? "" : await blob.text();
  return Promise.all(blobs.map(async (blob, at) => [names[at], blob.type, blob.size, await told(blob)]));
})()"""
SORTED = """(() => {
  const head = document.querySelector("table.sorts").rows[0].cells[2];
  return [0, 1].map(() => { head.querySelector("button").click(); return head.getAttribute("aria-sort") });
})()"""
LATER = "new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)))"
ARROW_RIGHT, HOME = ("ArrowRight", 39), ("Home", 36)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def quiet(chromium: Browser) -> Iterator[Browser]:
    """A browser whose console has nothing to say at the end."""
    chromium.complaints.clear()
    yield chromium
    assert chromium.complaints == []


def _shown(quiet: Browser) -> dict[str, Any]:
    quiet.ask(LATER)
    found: dict[str, Any] = quiet.ask(SHOWN)
    return found


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_slider_moves_figures_and_lines(simulated: Path, quiet: Browser, size: tuple[int, int], dark: bool) -> None:
    quiet.open(write_page(simulated).as_uri(), size, dark=dark)
    first = _shown(quiet)
    assert first["width"] == size[0]
    assert first["fits"]
    assert first["plots"] == [True] * 6
    assert first["slider"]
    assert (first["blocks"], first["drawn"], first["value"]) == (["1"], ["1"], "1")
    assert first["says"].startswith("requested: 2 to 20, 24,000/min each")
    quiet.ask('document.getElementById("policy").focus()')
    quiet.press(*ARROW_RIGHT)
    second = _shown(quiet)
    assert (second["blocks"], second["drawn"], second["value"]) == (["2"], ["2"], "2")
    assert second["says"].startswith("recommended: 2 to 20, 15,000/min each")
    assert second["figures"] != first["figures"]
    assert second["lines"] != first["lines"]
    quiet.press(*HOME)
    assert _shown(quiet)["says"].startswith("fixed fleet: 10")
    quiet.press(*ARROW_RIGHT)
    assert _shown(quiet) == first
    light = sum(int(part) for part in first["paper"].strip("rgb()").split(",")) > 3 * 128
    assert light is not dark


def test_without_scripts_the_judged_policy_is_shown(simulated: Path, quiet: Browser) -> None:
    quiet.open(write_page(simulated).as_uri(), script=False)
    found = quiet.ask(SHOWN)
    assert (found["blocks"], found["drawn"], found["slider"]) == (["1"], ["1"], False)
    assert found["plots"] == [True] * 6


def test_every_figure_comes_as_a_file_with_the_policy_that_is_shown(simulated: Path, quiet: Browser) -> None:
    quiet.open(write_page(simulated).as_uri())
    quiet.ask('document.getElementById("policy").focus()')
    quiet.press(*ARROW_RIGHT)
    files = {name: (kind, size, text) for name, kind, size, text in quiet.ask(FILES)}
    pictures = ("load", "fleet", "latency", "late-requests", "cost", "cost-against-risk")
    assert {f"{name}.{kind}" for name in pictures for kind in ("svg", "png")} <= files.keys()
    assert all(files[f"{name}.png"][1] > 5_000 for name in pictures)
    fleet = files["fleet.svg"][2]
    assert "var(" not in fleet
    assert "hidden" not in fleet
    assert 'data-policy="2"' in fleet
    assert 'data-policy="1"' not in fleet
    policies = files["Policies.csv"][2].splitlines()
    assert policies[0].startswith("policy,")
    assert [line.partition(",")[0] for line in policies[1:4]] == ["requested", "recommended", "fixed fleet"]
    kept = json.loads((simulated / "simulation.json").read_text("utf-8"))
    assert str(kept["policies"][0]["instance_hours"]) in policies[1]


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page_of_a_search_is_drawn(searched: Path, quiet: Browser, size: tuple[int, int], dark: bool) -> None:
    quiet.open(write_page(searched).as_uri(), size, dark=dark)
    found = quiet.ask(
        "({fits: document.documentElement.scrollWidth <= innerWidth, "
        'plots: [...document.querySelectorAll(".plot svg")].map(each => each.getBoundingClientRect().height > 100)})'
    )
    assert found == {"fits": True, "plots": [True, True]}


def test_a_run_page_sorts_its_tables_and_fits_a_phone(run_copy: RunFolder, quiet: Browser) -> None:
    quiet.open(write_page(run_copy.path).as_uri(), PHONE)
    assert quiet.ask("document.documentElement.scrollWidth <= innerWidth")
    assert quiet.ask(SORTED) == ["ascending", "descending"]


def test_the_index_leads_to_each_page(simulated: Path, tmp_path: Path, quiet: Browser) -> None:
    for name in ("one", "two"):
        shutil.copytree(simulated, tmp_path / name)
    quiet.open(write_index(tmp_path).as_uri(), PHONE)
    assert quiet.ask("document.documentElement.scrollWidth <= innerWidth")
    assert quiet.ask("[...document.links].map(each => each.textContent)") == ["one", "two"]
    quiet.ask("void document.links[0].click()")
    quiet.loaded()
    assert quiet.ask('document.querySelector("h1").textContent') == "spellcheck"
