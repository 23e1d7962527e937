"""The batch program: its files, its output, its errors, and restarts after a kill at any moment."""

import gzip
import hashlib
import json
import random
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from containers.batch.__main__ import main
from containers.batch.answering import ModelFolder
from containers.batch.storage import Folder
from containers.batch.worker import worker_environments
from containers.container_errors import ContainerError
from inference_recommender.sizing.batch import BatchReport
from tests.builders import known
from tests.containers.batch.batch_run import (
    Ended,
    contents,
    end,
    kill_group,
    read_rows,
    row,
    run,
    run_here,
    start,
    wait_for_parts,
    write_model,
    write_rows,
)
from tests.containers.neuron.stub_server import SERVING

ROWS = 3000
RESUME = "Finished chunks are kept. Run the same command again to continue."
GIVE = (
    "Give a built model: a folder with settings.json, tokenizer.json and the compiled model, or a Triton repository, "
    "or its .tar.gz."
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("source") / "pairs.jsonl", map(row, range(ROWS)))


@pytest.fixture(scope="module")
def uninterrupted(
    program: Path, model: Path, source: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Ended]:
    output = tmp_path_factory.mktemp("whole")
    return output, run(program, *job(model, source, output))


@pytest.fixture(scope="module")
def whole(uninterrupted: tuple[Path, Ended]) -> Path:
    """Returns the output of an uninterrupted run."""
    return uninterrupted[0]


def job(model: Path, source: object, output: object, *more: object) -> list[object]:
    """Small chunks, so that there are many."""
    return ["--model", model, "--input", source, "--output", output, "--chunk-rows", 64, "--workers", 2, *more]


def test_every_row_is_answered_once_in_input_order(uninterrupted: tuple[Path, Ended], source: Path) -> None:
    whole, ended = uninterrupted
    summary = known(ended.summary)
    assert ended.code == 0
    counts = [summary[key] for key in ("rows", "answered", "bad", "rows_done_before", "workers", "archive_sha256")]
    assert counts == [ROWS, ROWS, 0, 0, 2, None]
    assert summary["manifest"] == {"rows": ROWS, "answered": ROWS, "bad": 0}
    assert BatchReport.model_validate(summary).rows == ROWS  # `size` reads summaries
    assert summary["rows_per_second"] > 0
    assert 0 <= summary["padding_share"] < 0.2
    assert ended.log == "3,000 rows in 47 chunks, 0 of them finished before; 2 workers\n"
    answers = read_rows(whole, "predictions")
    assert [answer["id"] for answer in answers] == list(range(ROWS))
    assert all(answer.keys() == {"id", "DUPLICATE_SCORE", "RELATION"} for answer in answers)
    assert not [*whole.glob("bad-*"), *whole.glob(".*")]
    manifest = json.loads((whole / "manifest.json").read_text())
    sha256 = hashlib.sha256(source.read_bytes()).hexdigest()
    described = {
        "name": "pairs.jsonl",
        "bytes": source.stat().st_size,
        "sha256": sha256,
        "rows": ROWS,
        "blank_lines": 0,
    }
    assert manifest["input"] == [described]
    assert [part["first_line"] for part in manifest["parts"]] == list(range(1, ROWS, 64))
    for part in manifest["parts"]:
        content = (whole / f"predictions-{part['chunk']:06}.jsonl").read_bytes()
        assert part["predictions_sha256"] == hashlib.sha256(content).hexdigest()


def test_kills_at_random_moments_lose_and_repeat_no_row(
    program: Path, model: Path, source: Path, whole: Path, tmp_path: Path
) -> None:
    """First all processes are killed, then the program without its workers: they finish their chunk beside the restart.

    The output equals that of an uninterrupted run.
    """
    random_, output, finished = random.Random(0), tmp_path / "out", 0
    for kill in (kill_group, kill_group, subprocess.Popen.kill):
        process = start(program, *job(model, source, output))
        wait_for_parts(output, finished + random_.randrange(6), process)
        time.sleep(random_.random() * 0.02)
        kill(process)
        finished = len(list(output.glob("predictions-*")))
    assert finished < len(list(whole.glob("predictions-*"))), "never killed while it worked"
    ended = run(program, *job(model, source, output))
    process.communicate()
    assert ended.code == 0
    assert known(ended.summary)["rows_done_before"] + known(ended.summary)["rows"] == ROWS
    assert contents(output) == contents(whole)


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_finished_chunks(
    program: Path, model: Path, source: Path, whole: Path, tmp_path: Path, signal_: signal.Signals
) -> None:
    process = start(program, *job(model, source, tmp_path / "out"))
    wait_for_parts(tmp_path / "out", 3, process)
    process.send_signal(signal_)
    ended = end(process)
    assert ended.code == 130
    assert ended.summary is None
    assert ended.log.splitlines()[1:] == [f"Interrupted. {RESUME}"]
    kept = {name: content for name, content in contents(tmp_path / "out").items() if name.startswith("predictions")}
    assert len(kept) >= 3
    assert kept.items() <= contents(whole).items()


def test_a_worker_that_dies_ends_the_run_with_a_reason(
    program: Path, model: Path, source: Path, tmp_path: Path
) -> None:
    process = start(program, *job(model, source, tmp_path / "out"))
    wait_for_parts(tmp_path / "out", 1, process)
    psutil.Process(process.pid).children()[0].kill()
    ended = end(process)
    assert ended.code == 3
    assert ended.log.splitlines()[1:] == [f"worker 0 was killed by signal 9. {RESUME}"]


def test_a_restart_with_another_model_input_or_option_is_refused(
    program: Path, model: Path, source: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(whole)
    was = json.loads((whole / "job.json").read_text())
    other = write_model(tmp_path / "other", labels=("a", "b", "c"))
    write_rows(tmp_path / "in" / "pairs.jsonl", map(row, range(5)))
    arguments = job(other, tmp_path / "in", whole, "--chunk-rows", 65, "--batch-rows", 8)
    assert main(list(map(str, arguments))) == 2
    log = capsys.readouterr().err.strip()
    assert log.startswith(
        f"{whole}/job.json: this output was made from something else: model_sha256 was {was['model_sha256']}, is "
    )
    assert log.endswith(
        "; the input differs in pairs.jsonl; chunk_rows was 64, is 65; batch_rows was 64, is 8. Use the same input, "
        "model and options, or another --output."
    )
    assert contents(whole) == before


def test_bad_rows_have_their_own_file_with_line_and_reason(model: Path, tmp_path: Path) -> None:
    lines = [json.dumps(row(number)) for number in range(200)]
    lines[3] = "not json"
    lines[70] = ""
    lines[71] = json.dumps({"id": "x-1", "title": "only"})
    lines[199] = json.dumps({**row(199), "title": "a" * 100})
    (tmp_path / "in.jsonl").write_text("\r\n".join(lines))
    ended = run_here(*job(model, tmp_path / "in.jsonl", tmp_path / "out", "--max-bad-share", 0.02, "--workers", 1))
    assert ended.code == 0
    assert read_rows(tmp_path / "out", "bad") == [
        {"file": "in.jsonl", "line": 4, "id": None, "reason": "is not JSON: Expecting value at character 0"},
        {"file": "in.jsonl", "line": 72, "id": "x-1", "reason": "lacks the fields brand, other_title, other_brand"},
        {"file": "in.jsonl", "line": 200, "id": 199, "reason": "has 113 tokens, at most 40 are allowed"},
    ]
    assert [answer["id"] for answer in read_rows(tmp_path / "out", "predictions")] == [
        number for number in range(199) if number not in (3, 70, 71)
    ]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert (manifest["rows"], manifest["answered"], manifest["bad"]) == (199, 196, 3)
    assert manifest["input"][0]["blank_lines"] == 1
    assert [part["bad_sha256"] is None for part in manifest["parts"]] == [False, False, True, False]
    again = run_here(*job(model, tmp_path / "in.jsonl", tmp_path / "out", "--workers", 1))
    assert again.code == 1
    assert again.log.splitlines()[1:] == ["1.51% of the rows are bad. --max-bad-share allows 1.00%."]


def test_a_folder_is_read_in_the_order_of_its_names(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "b.jsonl", map(row, range(100, 150)))
    text = write_rows(tmp_path / "a.jsonl", map(row, range(100)))
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(gzip.compress(text.read_bytes()))
    write_rows(tmp_path / "in" / "deeper" / "c.jsonl", map(row, range(150, 160)))
    (tmp_path / "in" / "README").write_text("not a row")
    assert run_here(*job(model, tmp_path / "in", tmp_path / "out", "--workers", 1)).code == 0
    assert [answer["id"] for answer in read_rows(tmp_path / "out", "predictions")] == list(range(160))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [source["name"] for source in manifest["input"]] == ["a.jsonl.gz", "b.jsonl", "deeper/c.jsonl"]


def test_shards_share_one_output_and_the_last_writes_the_manifest(
    model: Path, source: Path, whole: Path, tmp_path: Path
) -> None:
    first, second = (
        known(run_here(*job(model, source, tmp_path / "out", "--shard", shard, "--workers", 1)).summary)
        for shard in ("1/2", "2/2")
    )
    assert first["manifest"] is None
    assert first["rows"] + second["rows"] == ROWS
    assert contents(tmp_path / "out") == contents(whole)


def test_an_input_without_rows_has_an_empty_output(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("\n\n")
    (tmp_path / "empty.jsonl").write_text("")
    for name in ("in", "empty"):
        ended = run_here(*job(model, tmp_path / f"{name}.jsonl", tmp_path / name))
        assert ended.code == 0
        assert known(ended.summary)["manifest"] == {"rows": 0, "answered": 0, "bad": 0}


GZIP = "Compressed file ended before the end-of-stream marker was reached"
NO_FILE = "[Errno 2] No such file or directory: 'nothing/settings.json'"
NO_GRAPH = "FileNotFoundError: {folder}/broken holds no model: none of model.onnx, model.pt, model.xml is there."
REFUSED: list[tuple[dict[str, str], int, str]] = [
    ({"--input": "none.jsonl"}, 2, "--input none.jsonl: there is no .jsonl or .jsonl.gz file."),
    ({"--input": "empty"}, 2, "a.jsonl.gz: is empty, as after an incomplete upload. Replace or remove the file."),
    ({"--input": "cut.jsonl.gz"}, 2, f"cut.jsonl.gz: cannot be read as gzip ({GZIP}). Replace or remove the file."),
    (
        {"--input": ".", "--output": "./out"},
        2,
        "--output ./out: is inside --input ., so a restart would read its own predictions. Give another folder.",
    ),
    (
        {"--model": "nothing"},
        3,
        f"--model nothing: settings.json cannot be read (FileNotFoundError: {NO_FILE}). {GIVE}",
    ),
    (
        {"--model": "broken"},
        3,
        f"worker 0 failed: --model {{folder}}/broken: cannot be loaded ({NO_GRAPH}). {GIVE} {RESUME}",
    ),
]


@pytest.mark.parametrize(("arguments", "exit_code", "message"), REFUSED)
def test_an_input_or_a_model_that_cannot_be_read_is_refused(
    arguments: dict[str, str],
    exit_code: int,
    message: str,
    model: Path,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("cut.jsonl.gz").write_bytes(gzip.compress(source.read_bytes())[:-20])
    Path("empty").mkdir()
    Path("empty/a.jsonl.gz").touch()
    shutil.copytree(model, "broken", ignore=shutil.ignore_patterns("model.onnx"))
    options = {"--model": str(model), "--input": str(source), "--output": str(tmp_path / "out"), "--workers": "1"}
    assert main([word for option in {**options, **arguments}.items() for word in option]) == exit_code
    assert capsys.readouterr().err.splitlines()[-1] == message.format(folder=tmp_path)


def test_a_triton_repository_is_a_model(model: Path, tmp_path: Path) -> None:
    """The ensemble has the tokenizer and the graph in different folders."""
    for step, file in (("tokenise", "tokenizer.json"), ("model", "model.onnx"), ("postprocess", "settings.json")):
        folder = tmp_path / "repository" / f"tiny_{step}" / "1"
        folder.mkdir(parents=True)
        for name in {file, "settings.json"}:
            shutil.copy(model / name, folder)
    source = write_rows(tmp_path / "in.jsonl", map(row, range(100)))
    assert run_here(*job(model, source, tmp_path / "folder", "--workers", 1)).code == 0
    assert run_here(*job(tmp_path / "repository", source, tmp_path / "repository-out", "--workers", 1)).code == 0
    assert read_rows(tmp_path / "folder", "predictions") == read_rows(tmp_path / "repository-out", "predictions")


@pytest.mark.parametrize(
    "wrong", [["--shard", "3/2"], ["--shard", "0/2"], ["--workers", "0"], ["--max-bad-share", "2"]]
)
def test_wrong_usage_is_exit_code_2(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--model", "m", "--input", "i", "--output", "o", *wrong])
    assert exit_.value.code == 2


def test_without_arguments_the_help_shows_a_whole_command(program: Path) -> None:
    ended = run(program)
    assert (ended.code, ended.summary) == (2, None)
    assert (
        "python -m containers.batch --model build/duplicates/cpu/model.tar.gz --input rows.jsonl --output" in ended.log
    )
    assert "manifest.json" in ended.log, "the files of the output"


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a", b"1")
    with pytest.raises(OSError, match="File name too long"):
        folder.write("b" * 250, b"2")
    assert contents(tmp_path) == {"a": b"1"}


def test_the_first_to_create_a_file_wins(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.create("job.json", b"1") == b"1"
    assert folder.create("job.json", b"2") == b"1"
    assert contents(tmp_path) == {"job.json": b"1"}


def test_each_worker_has_one_thread_and_on_neuron_its_own_cores(tmp_path: Path) -> None:
    environment = {"NEURON_RT_NUM_CORES": "4", "HOME": "/"}
    on_cpu = worker_environments(ModelFolder(Path(), tmp_path, 1), 3, environment)
    assert [each["OMP_NUM_THREADS"] for each in on_cpu] == ["1"] * 3
    (tmp_path / "model.8.neuron.pt").touch()
    (tmp_path / "server.json").write_text(replace(SERVING, pipeline_cores=2).to_json())
    on_neuron = ModelFolder(Path(), tmp_path, 1)

    def cores(workers: int | None) -> list[tuple[str, ...]]:
        names = ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "HOME")
        return [tuple(each[name] for name in names) for each in worker_environments(on_neuron, workers, environment)]

    assert cores(None) == [("0-1", "2", "/"), ("2-3", "2", "/")]
    assert cores(1) == [("0-1", "2", "/")]
    with pytest.raises(
        ContainerError, match=r"^--workers 3: the NeuronCores hold 2 copies of the model\. Give at most 2\.$"
    ):
        cores(3)
