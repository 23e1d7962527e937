"""Pages in a headless Chromium: tables sort, plots download, and pages fit a phone, light and dark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.cli.report import write_page
from inference_recommender.run_folder import RunFolder
from tests.inference_recommender.report.browser import CHROMIUM, DESKTOP, PHONE, Browser, browser

pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]

LOOK = """({
  fits: document.documentElement.scrollWidth <= innerWidth,
  plots: [...document.querySelectorAll(".plot svg")].map(each => each.getBoundingClientRect().height > 100),
  paper: getComputedStyle(document.body).backgroundColor,
})"""
SORTED = """(() => {
  const head = document.querySelector("table.sorts").rows[0].cells[2];
  return [0, 1].map(() => { head.querySelector("button").click(); return head.getAttribute("aria-sort") });
})()"""
FILES = """(async () => {
  const blobs = [], names = [], make = URL.createObjectURL;
  URL.createObjectURL = blob => { blobs.push(blob); return make.call(URL, blob) };
  HTMLAnchorElement.prototype.click = function () { names.push(this.download) };
  const buttons = [...document.querySelectorAll(".downloads button")];
  for (const button of buttons) button.click();
  while (blobs.length < buttons.length) await new Promise(go => setTimeout(go, 50));
  return Promise.all(blobs.map(async (blob, at) =>
    [names[at], blob.size, blob.type === "image/png" ? "" : await blob.text()]));
})()"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def quiet(chromium: Browser) -> Iterator[Browser]:
    """A browser whose console is empty at the end."""
    chromium.complaints.clear()
    yield chromium
    assert chromium.complaints == []


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desktop, light", "phone, dark"])
def test_pages_fit_the_screen_and_follow_the_colour_scheme(
    simulated: Path, searched: Path, run_copy: RunFolder, quiet: Browser, size: tuple[int, int], dark: bool
) -> None:
    for folder, plots in ((simulated, 1), (searched, 1), (run_copy.path, 2)):
        write_page(folder)
        quiet.open((folder / "report.html").as_uri(), size, dark=dark)
        found: dict[str, Any] = quiet.ask(LOOK)
        assert (found["fits"], found["plots"]) == (True, [True] * plots)
        light = sum(int(part) for part in found["paper"].strip("rgb()").split(",")) > 3 * 128
        assert light is not dark


def test_tables_sort_and_every_plot_and_table_comes_as_a_file(simulated: Path, quiet: Browser) -> None:
    write_page(simulated)
    quiet.open((simulated / "report.html").as_uri())
    assert quiet.ask(SORTED) == ["ascending", "descending"]
    files = {name: (size, text) for name, size, text in quiet.ask(FILES)}
    assert files["worst-day.png"][0] > 5_000
    assert "var(" not in files["worst-day.svg"][1]
    policies = files["Policies.csv"][1].splitlines()
    assert policies[0].startswith("policy,")
    assert sorted(line.partition(",")[0] for line in policies[1:]) == [
        "fixed fleet",
        "ideal",
        "recommended",
        "requested",
    ]
