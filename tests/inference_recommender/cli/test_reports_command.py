"""The index of all runs answers its owner's browser alone, shows each folder's report, and knows no path."""

import http.client
import json
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from inference_recommender.__main__ import main
from inference_recommender.cli.report import report
from inference_recommender.cli.reports import site
from inference_recommender.report.owner_only import NOT_FOUND, Page, ReportServer, refusal
from inference_recommender.report.side_by_side import side_by_side
from inference_recommender.run_folder import RunFolder
from tests.inference_recommender.report.conftest import kept, run_once
from tests.inference_recommender.report.test_report_document import a_proof

__all__ = ["kept", "run_once"]


@pytest.fixture
def runs(kept: RunFolder) -> Path:
    """A run, a second one of the same traffic, a proof, and a folder of something else."""
    folder = kept.path.parent
    shutil.copytree(kept.path, folder / "job-2")
    RunFolder(folder / "proof-1").keep("proof.json", a_proof("kept").model_dump(mode="json"))
    (folder / "notes").mkdir()
    (folder.parent / "secret").mkdir()
    (folder.parent / "secret" / "proof.json").write_text("{}", "utf-8")
    (folder / "link").symlink_to(folder.parent / "secret")
    return folder


def test_the_index_lists_every_folder_with_its_decision(runs: Path) -> None:
    text = site(runs, ("",), {}).text
    assert re.findall(r'<td><a href="run/([^"]+)">', text) == ["proof-1", "job-1", "job-2"]
    assert "Kept: P99 keeps 50 ms at 5,106 invocations/min." in text
    assert "notes is no run folder: it has no workload.json." in text
    assert re.findall(r"<option[^>]*>([^<]+)<", text) == ["job-1", "job-2"] * 2
    assert "link" not in re.findall(r"<td>([^<]+)</td>", text)


def test_each_folder_has_its_report_in_every_form(runs: Path) -> None:
    before = (runs / "job-1" / "report.html").read_text("utf-8")
    assert site(runs, ("run", "job-1"), {}).text == before
    assert site(runs, ("run", "job-1"), {"format": "markdown"}).text.startswith("**Deploy 47 × ml.c5.xlarge")
    assert json.loads(site(runs, ("run", "proof-1"), {"format": "json"}).text)["kind"] == "proof"
    assert not (runs / "proof-1" / "report.html").exists(), "to look is not to write"
    assert site(runs, ("run", "job-1"), {"format": "pdf"}) == NOT_FOUND


@pytest.mark.parametrize(
    "parts",
    [("run", ".."), ("run", "../secret"), ("run", "link"), ("run", "job-1", "workload.json"), ("run", ""), ("x",)],
)
def test_nothing_but_a_folder_of_the_list_is_an_address(runs: Path, parts: tuple[str, ...]) -> None:
    assert site(runs, parts, {}) == NOT_FOUND
    assert site(runs, ("compare",), {"baseline": "job-1", "candidate": "../secret"}) == NOT_FOUND


def test_two_runs_compare_as_the_command_does(runs: Path) -> None:
    text = site(runs, ("compare",), {"baseline": "job-1", "candidate": "job-2"}).text
    assert "job-2 against job-1" in text
    refused = site(runs, ("compare",), {"baseline": "job-1", "candidate": "proof-1"})
    assert (refused.status, refused.text) == (
        409,
        "job-1 (run, spellcheck) and proof-1 (proof, of an unknown workload) do not compare: take two of one kind and "
        "workload.\n",
    )


def test_two_folders_of_another_kind_stand_side_by_side(runs: Path) -> None:
    for name, verdict in (("proof-1", "kept"), ("proof-2", "missed")):
        folder = RunFolder(runs / name)
        proof = a_proof(verdict)
        slower = proof.scenarios[0].model_copy(update={"latency_ms": 62.4})
        kept = proof if verdict == "kept" else proof.model_copy(update={"scenarios": (slower,)})
        folder.keep("proof.json", kept.model_dump(mode="json"))
        folder.keep_workload(RunFolder(runs / "job-1").workload())
    text = site(runs, ("",), {}).text
    assert re.findall(r"<h2>Compare two ([^<]+)</h2>", text) == ["proofs of spellcheck", "runs of spellcheck"]
    text = site(runs, ("compare",), {"baseline": "proof-1", "candidate": "proof-2"}).text
    assert "proof-2 against proof-1" in text
    found = side_by_side(report(runs / "proof-1"), report(runs / "proof-2"))
    figures, decisions = found.table("figures"), found.table("decisions")
    assert figures is not None
    assert decisions is not None
    assert figures.rows == (
        {
            "table": "Proof: kept",
            "row": "peak",
            "figure": "latency, ms",
            "baseline": 31.2,
            "candidate": 62.4,
            "ratio": 2.0,
        },
    )
    assert decisions.rows[0] == {"fact": "verdict", "baseline": "met", "candidate": "missed"}
    assert found.cautions == (), "they have the same fingerprint"
    assert site(runs, ("compare",), {"baseline": "proof-1", "candidate": "job-1"}).status == 409


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ({"Host": "localhost:8000"}, None),
        ({"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}, None),
        ({"Host": "127.0.0.1", "Sec-Fetch-Site": "none"}, None),
        ({}, "These reports are at localhost and 127.0.0.1, not at ''."),
        ({"Host": "evil.example:80"}, "These reports are at localhost and 127.0.0.1, not at 'evil.example:80'."),
        (
            {"Host": "127.0.0.1", "Sec-Fetch-Site": "cross-site"},
            "These reports answer no other site's page: open the address that was printed.",
        ),
        (
            {"Host": "127.0.0.1", "Origin": "https://evil.example"},
            "These reports answer no other site's page: open the address that was printed.",
        ),
    ],
)
def test_a_foreign_page_or_name_is_refused(headers: dict[str, str], said: str | None) -> None:
    assert refusal(headers) == said


@pytest.fixture
def server() -> Iterator[ReportServer]:
    server = ReportServer(lambda parts, query: Page(text=f"{parts} {dict(query)}"))
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server
    server.close()
    thread.join()


def _get(server: ReportServer, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str]:
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(str(address.hostname), address.port, timeout=60)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    assert answer.status in (501,) or answer.headers["X-Frame-Options"] == "DENY"
    return answer.status, text


def test_the_server_answers_below_its_token_alone(server: ReportServer) -> None:
    token = urlsplit(server.url).path
    assert urlsplit(server.url).hostname == "127.0.0.1"
    assert len(token) > 30
    assert _get(server, token + "run/a%2Fb?format=json") == (200, "('run', 'a/b') {'format': 'json'}")
    assert _get(server, token, "HEAD") == (200, "")
    assert _get(server, "/")[0] == 404
    assert _get(server, "/" + "x" * 32 + "/")[0] == 404
    assert _get(server, token, host="evil.example")[0] == 403
    assert _get(server, token, "POST")[0] == 501


def test_a_port_that_is_taken_is_named(
    server: ReportServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = urlsplit(server.url).port
    assert main(["reports", "--runs", str(tmp_path), "--port", str(port)]) == 2
    said = f"--port: {port} cannot be listened on: Address already in use. Leave it out."
    assert " ".join(capsys.readouterr().err.split()) == said


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reports", "--runs", str(tmp_path / "none")]) == 2
    assert "--runs:" in capsys.readouterr().err
    assert main(["reports", "--runs", str(tmp_path), "--port", "70000"]) == 2
    assert "--port: got 70000. Allowed: 0 to 65535; 0 is a free one." in capsys.readouterr().err
