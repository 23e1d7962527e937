"""`invoke`: which model of an archive answers."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.__main__ import main
from inference_recommender.cli import deployed
from inference_recommender.client import HttpServer
from inference_recommender.kserve import Body, encode
from tests.builders import an_artifact
from workloads import load_workload


@pytest.fixture
def sent(workloads_copy: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Returns the headers of the requests that spellcheck's endpoint gets; its archive also has the model `other`."""
    file = workloads_copy / "spellcheck" / "workload.toml"
    text = file.read_text("utf-8")
    other = workloads_copy / "other" / "workload.toml"
    other.parent.mkdir()
    other.write_text(text.replace('name = "spellcheck"', 'name = "other"'), "utf-8")
    file.write_text(text + '\n[[models]]\nworkload = "other"\n', "utf-8")
    headers: list[Any] = []

    class Endpoint(HttpServer):
        def __init__(self, name: str, timeout_s: float) -> None:
            super().__init__("http://127.0.0.1:9", name, timeout_s=timeout_s)

        def send(self, request: Body, within_s: float) -> Body:
            headers.append(json.loads(request.content[: request.header_size]))
            answer = encode({"CORRECTED": [["red shoes"]]})
            header = json.loads(answer.content[: answer.header_size])
            content = json.dumps({"outputs": header["inputs"]}).encode()
            return Body(content=content + answer.content[answer.header_size :], header_size=len(content))

    monkeypatch.setattr(deployed, "load_workload", partial(load_workload, folder=workloads_copy))
    monkeypatch.setattr(deployed, "SageMakerEndpoint", Endpoint)
    return headers


def test_a_request_names_the_model_that_answers(sent: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    for model in ([], ["--model", "other"]):
        assert main(["invoke", "spellcheck", "--endpoint", "e", *model, "red sheos"]) == 0
    assert capsys.readouterr().out == "red sheos -> red shoes\n" * 2
    assert [header["parameters"].get("model") for header in sent] == [None, "other"]


def test_a_model_that_the_archive_lacks_is_refused(sent: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["invoke", "spellcheck", "--endpoint", "e", "--model", "duplicates", "a"]) == 2
    assert capsys.readouterr().err == (
        "--model: got 'duplicates'. Allowed: the [[models]] of workloads/spellcheck/workload.toml, other. Leave it out "
        "for the workload's own model.\n"
    )
    assert sent == []


def test_a_server_at_a_url_is_asked_for_the_builds_model(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def server(url: str, model: str, timeout_s: float) -> HttpServer:
        asked.append((url, model))
        made: HttpServer = endpoint(model, timeout_s=timeout_s)
        return made

    endpoint: Any = vars(deployed)["SageMakerEndpoint"]
    monkeypatch.setattr(deployed, "HttpServer", server)
    monkeypatch.setattr(deployed, "load_artifact", lambda *_: an_artifact(default_model="router"))
    assert main(["invoke", "spellcheck", "--url", "http://lb:8000", "red sheos"]) == 0
    assert asked == [("http://lb:8000", "router")]
    assert len(sent) == 1
