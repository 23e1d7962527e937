"""Commands on endpoints: the model that `invoke` calls, and the starts that `run --cold-start` measures."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.cli import deployed
from inference_recommender.cli import run as run_command
from inference_recommender.measure import start_stages
from tests.builders import a_candidate, a_provenance, a_recommendation, an_artifact
from tests.inference_recommender.api import DeployedAccount
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.measure.recorded_log import OWN, QUIET, VERBOSE
from tests.inference_recommender.server import Server, serving
from workloads import Recommendation, WorkloadFolder, load_workload

ARCHIVE = "b" * 64
AMI = "al2023-ami-sagemaker-inference-gpu-4-1"


def an_account(*logs: str) -> DeployedAccount:
    account = DeployedAccount(
        *logs, InstanceType="ml.g5.xlarge", InitialInstanceCount=7, InferenceAmiVersion=AMI, VariantName="Deployed"
    )
    account.archive = ARCHIVE
    return account


@pytest.fixture
def folder(workloads_copy: Path, monkeypatch: pytest.MonkeyPatch) -> WorkloadFolder:
    found = load_workload("spellcheck", workloads_copy)
    monkeypatch.setattr(run_command, "workload_to_measure", lambda *_: found)
    return found


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli) -> Command:
    monkeypatch.setattr(start_stages, "ask_url", lambda url: lambda body: True)

    def run(account: DeployedAccount, *more: str) -> tuple[int, str, str]:
        monkeypatch.setattr(run_command, "SageMakerAccount", lambda: account)
        return cli("run", "spellcheck", "--cold-start", "--runs", str(tmp_path), *more)

    return run


def test_the_medians_of_starts_like_the_deployed_one_go_into_the_recommendation(
    run: Command, folder: WorkloadFolder
) -> None:
    recommendation = a_recommendation(a_candidate(2, 600.0), archive_sha256=ARCHIVE)
    recommendation.write_json(folder.recommendation_file)
    slower = OWN.replace("09:16:40.1", "09:16:40.0")
    account = an_account(OWN + QUIET, slower + QUIET, slower + QUIET)
    code, out, _ = run(account, "--json")
    result = json.loads(out)
    assert code == 0
    assert (result["fetch_s"], result["unpack_s"]) == pytest.approx((0.025, 0.175), abs=1e-5)
    assert result["ranges_s"]["unpack_s"] == pytest.approx([0.075, 0.175], abs=1e-5)
    assert (result["starts"], result["instance_type"], result["archive_sha256"]) == (3, "ml.g5.xlarge", ARCHIVE)
    made = [variant for config in account.made for variant in config["ProductionVariants"]]
    assert [(each["ModelName"], each["InitialInstanceCount"]) for each in made] == [("served", 1)] * 3
    assert made[0]["InferenceAmiVersion"] == AMI
    assert len(account.deleted) == 3
    assert Recommendation.from_json(folder.recommendation_file).cold_start is not None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (None, "it does not exist"),
        ({"archive_sha256": "c" * 64}, "it is for another archive"),
        (
            {"archive_sha256": ARCHIVE, "provenance": a_provenance(measured_on="sagemaker")},
            "it was measured on sagemaker, the start on local",
        ),
    ],
)
def test_a_recommendation_for_something_else_is_not_changed(
    run: Command, folder: WorkloadFolder, changes: dict[str, Any] | None, reason: str
) -> None:
    file = folder.recommendation_file
    if changes is not None:
        a_recommendation(**changes).write_json(file)
    before = file.read_bytes() if changes is not None else b""
    code, out, err = run(an_account())
    assert code == 0
    assert "A new server answers within the objective after 3.6 s: 3 starts of ml.g5.xlarge on " in out
    assert err.splitlines()[-1] == f"Not written to {file}: {reason}."
    assert (file.read_bytes() if file.exists() else b"") == before


def test_the_starts_of_an_endpoint_are_read_from_its_log(run: Command) -> None:
    account = an_account(QUIET, VERBOSE, "a line of another program")
    code, out, _ = run(account, "--endpoint", "deployed", "--json")
    result = json.loads(out)
    assert (code, result["starts"], result["total_s"], result["first_answer_s"]) == (0, 2, None, None)
    assert result["warm_up_s"] == pytest.approx(0.127916, abs=1e-5)
    assert account.made == []
    code, _, err = run(an_account("Booting worker"), "--endpoint", "deployed")
    assert (code, err) == (
        3,
        "deployed: its log in CloudWatch Logs does not show when a server loaded its models. Set "
        "SAGEMAKER_TRITON_LOG_INFO=true in the model's environment.\n",
    )


@pytest.mark.parametrize(
    ("at", "message"),
    [
        (1, "Interrupted: no start was measured, and nothing was written."),
        (2, "Interrupted: 1 of 3 starts were measured."),
    ],
)
def test_ctrl_c_deletes_the_endpoint_and_keeps_finished_starts(run: Command, at: int, message: str) -> None:
    account = an_account()
    account.interrupted_at = at
    code, _, err = run(account)
    assert (code, err.splitlines()[-1]) == (130, message)
    assert len(account.deleted) == at


@pytest.fixture
def server(workloads_copy: Path, monkeypatch: pytest.MonkeyPatch, credentials: None) -> Iterator[Server]:
    """Answers for spellcheck's endpoint; its archive also has the model `other`."""
    file = workloads_copy / "spellcheck" / "workload.toml"
    text = file.read_text("utf-8")
    other = workloads_copy / "other" / "workload.toml"
    other.parent.mkdir()
    other.write_text(text.replace('name = "spellcheck"', 'name = "other"'), "utf-8")
    file.write_text(text + '\n[[models]]\nworkload = "other"\n', "utf-8")
    monkeypatch.setattr(deployed, "load_workload", partial(load_workload, folder=workloads_copy))
    corrected = {"name": "CORRECTED", "datatype": "BYTES", "shape": [1, 1], "data": ["red shoes"]}
    with serving(lambda body: (200, json.dumps({"outputs": [corrected]}).encode())) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.root)
        yield server


def test_a_request_names_the_model_that_answers(server: Server, cli: Cli) -> None:
    for model in ([], ["--model", "other"]):
        assert cli.out("invoke", "spellcheck", "--endpoint", "e", *model, "red sheos") == "red sheos -> red shoes\n"
    headers = [json.JSONDecoder().raw_decode(body.decode("latin-1"))[0] for body in server.seen]
    assert [header["parameters"].get("model") for header in headers] == [None, "other"]


def test_a_model_that_the_archive_lacks_is_refused(server: Server, cli: Cli) -> None:
    assert cli.err("invoke", "spellcheck", "--endpoint", "e", "--model", "duplicates", "a") == (
        "--model: got 'duplicates'. Allowed: the [[models]] of workloads/spellcheck/workload.toml, other. Leave it out "
        "for the workload's own model.\n"
    )
    assert server.seen == []


def test_a_server_at_a_url_is_asked_for_the_builds_model(
    server: Server, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployed, "load_artifact", lambda *_: an_artifact(default_model="router"))
    assert cli.out("invoke", "spellcheck", "--url", server.root, "red sheos") == "red sheos -> red shoes\n"
    assert [path for path, _ in server.heads] == ["/v2/models/router/infer"]
