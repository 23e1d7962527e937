"""`prove` on the command line, the load generator and its servers in virtual time."""

import io
import json
import re
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from inference_recommender import prove
from inference_recommender.__main__ import main
from inference_recommender.load_generator.load_plan import LoadPlan
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.requests import read_payloads
from inference_recommender.measure import fleet_proof, probe, workload_run
from inference_recommender.payloads import request_bodies
from inference_recommender.run_folder import RunFolder
from tests.builders import OBJECTIVE, a_recommendation, a_system
from tests.inference_recommender.api import DeployedAccount
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.load_generator.virtual_run import URL, run_command
from tests.virtual_time import Request, answering
from workloads import ArrivalProcess, MissingArtifact, Proof, Recommendation, load_workload


class Servers:
    """One server at a time, whose answers take `service_ms`; keeps the plans of its load."""

    def __init__(self) -> None:
        self.plans: list[LoadPlan] = []
        self.service_ms: float | Callable[[Request], float] = 20.0
        self.cpu_share = 0.1
        self.interrupted_at: int | None = None

    def generate(self, plan: LoadPlan, folder: Path, on_event: Any = None) -> Outcome:
        self.plans.append(plan)
        if len(self.plans) == self.interrupted_at:
            raise KeyboardInterrupt
        service = self.service_ms
        serve = answering((lambda request: service(request) / 1000) if callable(service) else service / 1000)
        with redirect_stdout(io.StringIO()):
            plan = plan.model_copy(update={"url": URL, "endpoint": None})
            return run_command(plan, serve, folder, cpu_share=self.cpu_share)

    def rates(self) -> list[float]:
        return [plan.arrivals.invocations_per_minute for plan in self.plans if plan.arrivals]


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Servers:
    """Nothing is built here, so that nothing tells which archive a server has."""

    def not_built(root: Path, workload: str, target: str) -> None:
        raise MissingArtifact(root, workload, target)

    servers = Servers()
    monkeypatch.setattr(probe, "generate", servers.generate)
    monkeypatch.setattr(workload_run, "load_artifact", not_built)
    return servers


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A recommendation of ten instances for 12,000 invocations a minute, in a release's run folder."""
    folder = RunFolder(tmp_path / "candidate")
    folder.keep_workload(load_workload("spellcheck").workload)
    folder.keep_measurements(())
    folder.keep("request.json", {"InputConfig": {}})
    folder.keep_recommendation(a_recommendation())
    return folder.path / "recommendation.json"


def _prove(file: Path, *more: str) -> int:
    return main(["prove", "spellcheck", "--from", str(file), "--runs", str(file.parent.parent / "runs"), *more])


def _at_url(file: Path, *more: str) -> int:
    return _prove(file, "--url", "http://127.0.0.1:8000", "--max-duration-s", "60", *more)


def _proof_folder(file: Path) -> Path:
    (folder,) = (file.parent.parent / "runs").iterdir()
    return folder


def test_the_plan_the_table_and_the_verdict_are_printed(
    servers: Servers, file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(file.parent.parent)
    assert _at_url(file) == 0
    out, err = capsys.readouterr()
    assert out.startswith("spellcheck: P90 model latency ≤ 50 ms\n")
    sentence = out.splitlines()[-1].removeprefix("Kept: ").removesuffix(".")
    assert re.fullmatch(
        r"P90 20 ms at 1,200 invocations/min \(limit 50 ms\): 0 of \d{3} requests were late, \d\d allowed", sentence
    )
    assert load_workload("spellcheck").workload.objective != OBJECTIVE
    assert err.startswith(
        "Warning: candidate/recommendation.json was measured for another objective than workload.toml has now. The "
        "proof is for the measured objective.\nWarning: The archive that http://127.0.0.1:8000 serves is unknown, so "
        "the proof cannot check it.\nWarm-up: 5 s to 60 s\npeak: 1,200 invocations/min, 10 s to 60 s\n"
    )
    assert f"    peak: {sentence}\n" in err
    assert "instance lost: not tested, because --max-duration-s is too short for it; 1,333/min per instance " in err
    assert "\nReport: candidate/report.html\nAdded to candidate/recommendation.json. Measurements: runs/" in err


def test_a_recommendation_that_is_kept_exits_with_0_and_carries_its_proof(
    servers: Servers, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _at_url(file, "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["verdict"] == "kept"
    assert (printed["invocations_per_minute"], printed["percentile"], printed["limit_ms"]) == (1200, "P90", 50)
    assert printed["latency_ms"] == pytest.approx(20.0, abs=0.1)
    assert printed["latency_interval_ms"] == [pytest.approx(20.0, abs=0.1), pytest.approx(20.0, abs=0.1)]
    assert [each["name"] for each in printed["scenarios"]] == ["peak"]
    assert [round(rate) for rate in servers.rates()] == [1200, 1200]
    proof = Proof.model_validate_json(json.dumps(printed))
    assert Recommendation.from_json(file).proof == proof == Proof.from_json(_proof_folder(file) / "proof.json")
    report = (file.parent / "report.html").read_text("utf-8")
    assert "<h2>Proof: kept</h2>" in report
    assert proof.reason in report
    assert proof.not_tested[0] in report


def test_a_proof_sends_the_arrivals_of_the_measured_objective(servers: Servers, file: Path) -> None:
    arrivals = ArrivalProcess(process="gamma", cv=2.0)
    a_recommendation(objective=OBJECTIVE.model_copy(update={"arrivals": arrivals})).write_json(file)
    assert _at_url(file) == 0
    assert {plan.arrivals.process for plan in servers.plans if plan.arrivals} == {arrivals}


@pytest.mark.parametrize(("seconds", "code"), [(40, 2), (400, 0)])
def test_recorded_arrivals_are_replayed_unless_they_are_shorter_than_the_proof(
    servers: Servers, file: Path, capsys: pytest.CaptureFixture[str], seconds: int, code: int, tmp_path: Path
) -> None:
    stamps = tmp_path / "recorded.csv"
    stamps.write_text("time\n" + "".join(f"{number / 10:.1f}\n" for number in range(10 * seconds + 1)))
    replay = ArrivalProcess(process="replay", file=str(stamps))
    a_recommendation(objective=OBJECTIVE.model_copy(update={"arrivals": replay})).write_json(file)
    assert _at_url(file) == code
    kept = [plan.arrivals.process.file for plan in servers.plans if plan.arrivals]
    assert {Path(name or "").name for name in kept} == ({"recorded.csv"} if code == 0 else set())
    if code:
        assert "last 20 s at 1,200 requests/min, but 60 s are to be sent." in " ".join(capsys.readouterr().err.split())


def test_a_proof_sends_requests_of_the_form_that_was_measured(servers: Servers, file: Path) -> None:
    """They miss the objective."""
    servers.service_ms = 80.0
    objective = OBJECTIVE.model_copy(update={"rows_per_invocation": 3, "payload_format": "binary"})
    a_recommendation(objective=objective).write_json(file)
    assert _at_url(file) == 1
    rows = load_workload("spellcheck").payloads()
    assert read_payloads(_proof_folder(file) / "payloads.tar.gz") == request_bodies(rows, objective)


def test_an_inconclusive_proof_exits_with_4_and_suggests_a_longer_one(
    servers: Servers, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = [0]

    def every_tenth(request: Request) -> float:
        count[0] += 1
        return 60.0 if count[0] % 10 == 0 else 20.0

    servers.service_ms = every_tenth
    assert _at_url(file) == 4
    out, err = capsys.readouterr()
    assert err.endswith("\nInconclusive. Run longer: --max-duration-s 150\n")
    assert out.splitlines()[-1].startswith("Inconclusive: P90 ")
    assert "<h2>Proof: inconclusive</h2>" in (file.parent / "report.html").read_text("utf-8")


def test_a_generator_in_the_way_proves_nothing(
    servers: Servers, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers.cpu_share = 0.99
    assert _at_url(file) == 4
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("No verdict: generator lagged: ")
    assert "Run the generator on another machine than the server, or on one with more cores." in told
    assert Recommendation.from_json(file).proof is None
    assert (_proof_folder(file) / "proof.json").exists()


def test_an_interruption_keeps_what_was_measured(
    servers: Servers, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    servers.interrupted_at = 3
    assert _prove(file, "--url", "http://127.0.0.1:8000") == 130
    folder = _proof_folder(file)
    assert capsys.readouterr().err.endswith(f"Interrupted. Measurements: {folder}.\n")
    proof = Proof.from_json(folder / "proof.json")
    assert [each.verdict for each in proof.scenarios] == ["kept"]
    assert Recommendation.from_json(file).proof is None


def test_the_report_of_a_run_that_is_elsewhere_is_not_drawn(
    servers: Servers, file: Path, tmp_path: Path, cli: Cli
) -> None:
    alone = file.rename(tmp_path / "recommendation.json")
    assert "The folder runs/job-1 does not exist, so no report was updated.\n" in cli.err(
        "prove", "spellcheck", "--from", str(alone), "--runs", str(tmp_path / "r"), "--url", "http://h", code=0
    )


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (
            None,
            "{file} does not exist, so there is no recommendation to prove. Measure one: python -m "
            "inference_recommender run spellcheck\n",
        ),
        (
            {"recommended": None},
            "{file}: recommended: is null, so there is no fleet to prove. Measure one: python -m "
            "inference_recommender run spellcheck\n",
        ),
        ({"workload": "query_intent"}, "{file}: workload: got 'query_intent'. Allowed: 'spellcheck'.\n"),
    ],
)
def test_a_file_without_a_fleet_to_prove_is_refused(
    servers: Servers, file: Path, capsys: pytest.CaptureFixture[str], change: Mapping[str, Any] | None, told: str
) -> None:
    if change is None:
        file.unlink()
    else:
        a_recommendation(**change).model_copy(update=change).write_json(file)
    assert (_at_url(file), capsys.readouterr().err) == (2, told.format(file=file))
    assert servers.plans == []


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> DeployedAccount:
    """The stack's endpoint of two instances on AWS."""
    account = DeployedAccount(InitialInstanceCount=2)
    account.url = None
    monkeypatch.setattr(fleet_proof, "SageMakerAccount", lambda: account)
    return account


def test_the_stacks_endpoint_gets_the_share_of_every_instance(
    servers: Servers, account: DeployedAccount, file: Path
) -> None:
    assert _prove(file, "--max-duration-s", "60") == 0
    assert {plan.endpoint.name for plan in servers.plans if plan.endpoint} == {"deployed"}
    assert [round(rate) for rate in servers.rates()] == [2400, 2400]


@pytest.mark.parametrize(
    ("changes", "more", "begins"),
    [
        (
            {"archive_sha256": "b" * 64},
            (),
            "{file}: archive_sha256: aaaaaaaaaaaa… was measured, but endpoint-1 serves bbbbbbbbbbbb…. Deploy the "
            "measured archive, or measure the deployed one.",
        ),
        (
            {"instance_type": "ml.g5.xlarge"},
            (),
            "{file}: recommended.instance_type: is ml.c5.xlarge, but endpoint-1 runs on ml.g5.xlarge. Prove it on an "
            "endpoint of ml.c5.xlarge.",
        ),
        (
            {"expires_at": datetime(2020, 1, 1, tzinfo=UTC)},
            ("--max-duration-s", "600"),
            "--max-duration-s: the proof may take 726 s, but endpoint-1 expires in 0 s, at 2020-01-01T00:00:00+00:00. "
            "Use a shorter time or a permanent endpoint.",
        ),
        (
            {"instances": 2},
            ("--max-duration-s", "1"),
            "--max-duration-s: 1 s is too short for P90 at 2,400 invocations/min. Allowed: 2 s or more.",
        ),
        ({}, ("--instances", "2xml.c5.xlarge"), "--instances: only with --url. AWS reports it for an endpoint."),
        ({}, ("--url", "http://h", "--instances", "0"), "--instances: got '0'. Allowed: TYPE or NxTYPE, "),
    ],
)
def test_what_could_not_be_proven_is_refused_before_any_load(
    servers: Servers,
    account: DeployedAccount,
    file: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, Any],
    more: tuple[str, ...],
    begins: str,
) -> None:
    monkeypatch.setattr(workload_run, "system_of_endpoint", lambda *_: a_system(**changes))
    assert _prove(file, *more) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(begins.format(file=file))
    assert (servers.plans, (file.parent.parent / "runs").exists()) == ([], False)


@pytest.mark.filterwarnings("ignore:.*was measured for another objective", "ignore:The archive that")
def test_a_proof_from_python_prints_nothing_and_reports_each_look(
    servers: Servers, file: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sentences = list[str]()
    url, runs = "http://127.0.0.1:8000", tmp_path / "runs"
    done = prove("spellcheck", recommendation=file, url=url, max_duration_s=60, runs=runs, progress=sentences.append)
    assert done.proof == Recommendation.from_json(file).proof
    assert (done.proof.verdict, done.report) == ("kept", file.parent / "report.html")
    assert sentences[:2] == ["Warm-up: 5 s to 60 s", "peak: 1,200 invocations/min, 10 s to 60 s"]
    assert capfd.readouterr() == ("", "")
