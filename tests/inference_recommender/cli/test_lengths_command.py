"""`lengths` on the command line, against a server on loopback that echoes; only its load is left out."""

import contextlib
import itertools
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from inference_recommender.__main__ import main
from inference_recommender.cli import lengths as command_line
from inference_recommender.lengths import survey
from inference_recommender.lengths.survey import Survey
from inference_recommender.lengths.tokens import PayloadTokenizer
from tests.inference_recommender.lengths.test_shifts import USERS, records
from tests.inference_recommender.lengths.test_tokens import tokenizer_of
from tests.inference_recommender.server import Answer, serving
from workloads import WorkloadFolder


@contextlib.contextmanager
def no_load(*_: object, **__: object) -> Iterator[None]:
    yield


@pytest.fixture(autouse=True)
def _without_a_build(monkeypatch: pytest.MonkeyPatch) -> None:
    def tokenizer(folder: WorkloadFolder, target: str) -> PayloadTokenizer:
        return tokenizer_of(folder.workload.name)

    monkeypatch.setattr(command_line, "built_tokenizer", tokenizer)
    monkeypatch.setattr(survey, "beside_load", no_load)
    monkeypatch.setattr(survey, "driven", lambda *_: records(USERS))


def echo(body: bytes) -> tuple[int, bytes]:
    (text,) = json.loads(body)["inputs"][0]["data"]
    output = {"name": "CORRECTED", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    return 200, json.dumps({"outputs": [output]}).encode()


def lengths(answer: Answer, runs: Path, *more: str) -> tuple[int, Path | None]:
    """Runs the command against a server; returns the exit code and the folder that it left."""
    with serving(answer, delay_s=0.0) as server:
        code = main(["lengths", "spellcheck", "--url", server.url, "--runs", str(runs), "--requests", "5", *more])
    return code, next(iter(runs.glob("spellcheck-lengths-*")), None)


def test_a_server_that_takes_no_length_is_measured_as_its_answers_come(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every request takes 4 ms by the survey's clock, however busy the machine is."""
    clock = itertools.count()
    monkeypatch.setattr(command_line, "Survey", partial(Survey, clock_s=lambda: next(clock) * 0.004))
    others = tmp_path / "longer.jsonl"
    others.write_text('{"text": "waterproof winter jacket for dogs with a hood"}\n', "utf-8")
    code, folder = lengths(echo, tmp_path / "runs", "--json", "--payloads", str(others))
    shown = capsys.readouterr()
    assert code == 0
    assert folder is not None
    document = json.loads(shown.out)
    assert document == json.loads((folder / "lengths.json").read_text("utf-8"))
    assert (document["forced"], document["workload"]) == (False, "spellcheck")
    assert len(document["payloads"]) == 256
    assert document["lengths"]["output_tokens"]["p50"] == document["lengths"]["input_tokens"]["p50"] == 11
    assert [each["name"] for each in document["lengths"]["shifts"]][-1] == "longer.jsonl"
    assert document["cautions"] == [
        "Answers had the lengths that the model gave them: this server takes no length to force.",
        "The answers' lengths follow the requests' so closely that what each costs by itself is not told.",
    ]
    assert "Input lengths: 4, 11, 15, 20, 32, 51, 64" in shown.err
    assert shown.err.rstrip().endswith(("it does not exist.", "no server of --url tells which archive it serves."))


def test_payloads_that_miss_the_objective_alone_have_no_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(survey, "driven", lambda *_: records({1: 5.0, 2: 5.0}))
    code, folder = lengths(echo, tmp_path)
    assert code == 4
    assert folder is not None
    assert (folder / "lengths.json").exists()
    assert "No rate of the payloads as they are is within the objective." in " ".join(capsys.readouterr().err.split())


def test_a_row_of_more_tokens_than_the_model_takes_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    others = tmp_path / "longer.jsonl"
    others.write_text('{"text": "jacket"}\n' + json.dumps({"text": "jacket " * 90}) + "\n", "utf-8")
    assert lengths(echo, tmp_path / "runs", "--payloads", str(others)) == (2, None)
    assert " ".join(capsys.readouterr().err.split()) == (
        f"{others}: row 2 has 272 tokens, and spellcheck takes 64 at most. Shorten it, or raise max_input_tokens in "
        "workload.toml and build again."
    )


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (lambda body: (400, b'{"error": "TEXT row 0 is empty."}'), ' answered 400: {"error": "TEXT row 0 is empty."}.'),
        (
            lambda body: (200, b"{}"),
            "The answer is no KServe v2 response: outputs is None, not of type list, in b'{}'.",
        ),
    ],
)
def test_a_server_that_refuses_is_quoted(
    answer: Answer, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lengths(answer, tmp_path)[0] == 3
    assert " ".join(capsys.readouterr().err.split()).endswith(said)


def test_a_server_that_is_not_there_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server:
        url = server.root
    assert main(["lengths", "spellcheck", "--url", url, "--runs", str(tmp_path)]) == 3
    assert " ".join(capsys.readouterr().err.split()).endswith(
        f"{url} does not answer: [Errno 111] Connection refused. Start the server, or name another."
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["spellcheck", "--model", "other"], "--model: goes with --url; of an endpoint AWS knows it."),
        (["spellcheck", "--target", "gpu"], "there is no target 'gpu'. Known targets: cpu, cpu-int8, cuda, tensorrt."),
    ],
)
def test_what_does_not_fit_together_is_refused(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lengths", *arguments]) == 2
    assert capsys.readouterr().err.strip().endswith(said)
