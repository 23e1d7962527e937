"""The page in a headless Chromium: no complaint, tables sort, figures come as files, and it fits a phone."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.report.page import draw
from inference_recommender.run_folder import RunFolder
from tests.inference_recommender.report.test_report_document import a_proof

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here")]

ASK = """<script>
{
  const files = [], rows = table => [...table.rows].slice(1).map(row => row.cells[2].textContent);
  HTMLAnchorElement.prototype.click = function () { files.push(this.download + " " + this.href.split(":")[0]) };
  const table = document.querySelector("table.sorts"), head = table.rows[0].cells[2], orders = [];
  for (let click = 0; click < 2; click++) {
    head.querySelector("button").click();
    orders.push(head.getAttribute("aria-sort"), rows(table));
  }
  for (const button of document.querySelectorAll(".downloads button")) button.click();
  setTimeout(() => {
    const plots = [...document.querySelectorAll(".plot svg")].map(svg => svg.getBoundingClientRect().height > 100);
    const fits = document.documentElement.scrollWidth <= innerWidth;
    const ink = getComputedStyle(document.body).color;
    const told = document.createElement("pre");
    told.id = "told";
    told.textContent = JSON.stringify({files, orders, plots, fits, width: innerWidth, ink});
    document.body.append(told);
  }, 1500);
}
</script>"""


def _asked(page: Path, folder: Path, *options: str) -> dict[str, Any]:
    """Opens a copy of the page that tells what became of clicks. Fails where the console has anything to say."""
    copy = folder / "asked.html"
    copy.write_text(page.read_text("utf-8").replace("</html>", ASK + "</html>"), "utf-8")
    seen = subprocess.run(
        [
            str(CHROMIUM),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            f"--user-data-dir={folder / 'profile'}",
            "--enable-logging=stderr",
            "--virtual-time-budget=6000",
            *options,
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert not re.findall(r".*CONSOLE.*", seen.stderr)
    told = re.search(r'<pre id="told">(.*?)</pre>', seen.stdout, re.S)
    assert told is not None, seen.stderr
    document: dict[str, Any] = json.loads(unescape(told[1]))
    return document


@pytest.fixture
def proven(kept: RunFolder) -> RunFolder:
    kept.keep_recommendation(kept.recommendation().model_copy(update={"proof": a_proof("kept")}))
    draw(kept)
    return kept


def test_tables_sort_and_every_figure_comes_as_a_file(proven: RunFolder, tmp_path: Path) -> None:
    told = _asked(proven.report, tmp_path, "--window-size=1200,900")
    up, ascending, down, descending = told["orders"]
    assert (up, down) == ("ascending", "descending")
    assert len(ascending) > 1
    assert ascending == descending[::-1]
    assert told["plots"] == [True] * 3
    assert told["fits"]
    kinds = [re.sub(r".*\.", "", name) for name in told["files"]]
    assert {kind: kinds.count(kind) for kind in set(kinds)} == {"svg blob": 3, "png blob": 3, "csv blob": 3}


def test_the_page_fits_a_phone_and_is_dark_where_the_reader_is(proven: RunFolder, tmp_path: Path) -> None:
    light = _asked(proven.report, tmp_path, "--window-size=390,844")
    dark = _asked(proven.report, tmp_path, "--window-size=390,844", "--blink-settings=preferredColorScheme=0")
    assert light["fits"]
    assert dark["ink"] != light["ink"]
