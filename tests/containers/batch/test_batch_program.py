"""The batch program as a process: what it writes, prints, refuses, and how it survives being killed at any moment."""

import gzip
import hashlib
import json
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from containers.batch.__main__ import main
from containers.batch.storage import Folder
from containers.batch.worker_pool import on_cpu, on_neuron
from containers.errors import ContainerError
from tests.containers.batch.batch_model import row, write_model, write_rows
from tests.containers.batch.batch_run import (
    contents,
    end,
    install,
    kill_group,
    read_rows,
    run,
    run_here,
    start,
    wait_for_parts,
)

ROWS = 3000


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("program"))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "1")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rows(tmp_path_factory.mktemp("source") / "pairs.jsonl", map(row, range(ROWS)))


@pytest.fixture(scope="module")
def whole(program: Path, model: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output of a run that nothing interrupted."""
    output = tmp_path_factory.mktemp("whole")
    assert run(program, *job(model, source, output)).code == 0
    return output


def job(model: Path, source: object, output: object, *more: object) -> list[object]:
    """Small chunks, so that there are many."""
    return ["--model", model, "--input", source, "--output", output, "--chunk-rows", 64, "--workers", 2, *more]


def test_every_row_is_answered_once_in_input_order(whole: Path) -> None:
    answers = read_rows(whole, "predictions")
    assert [answer["id"] for answer in answers] == list(range(ROWS))
    assert all(answer.keys() == {"id", "DUPLICATE_SCORE", "RELATION"} for answer in answers)
    assert not list(whole.glob("bad-*"))
    assert not list(whole.glob(".*"))


def test_the_manifest_accounts_for_every_row_of_the_input(whole: Path, source: Path) -> None:
    manifest = json.loads((whole / "manifest.json").read_text())
    assert (manifest["rows"], manifest["answered"], manifest["bad"]) == (ROWS, ROWS, 0)
    assert manifest["input"] == [
        {
            "name": "pairs.jsonl",
            "bytes": source.stat().st_size,
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
            "rows": ROWS,
            "blank_lines": 0,
        }
    ]
    assert [part["first_line"] for part in manifest["parts"]] == list(range(1, ROWS, 64))
    for part in manifest["parts"]:
        content = (whole / f"predictions-{part['chunk']:06}.jsonl").read_bytes()
        assert part["predictions_sha256"] == hashlib.sha256(content).hexdigest()
        assert part["rows"] == part["answered"] == content.count(b"\n")


def test_the_summary_says_what_was_done_and_how_fast(model: Path, source: Path, tmp_path: Path) -> None:
    ended = run_here(*job(model, source, tmp_path / "out"))
    assert ended.code == 0
    assert ended.summary is not None
    assert {key: ended.summary[key] for key in ("rows", "answered", "bad", "rows_done_before", "workers")} == {
        "rows": ROWS,
        "answered": ROWS,
        "bad": 0,
        "rows_done_before": 0,
        "workers": 2,
    }
    assert ended.summary["manifest"] == {"rows": ROWS, "answered": ROWS, "bad": 0}
    assert ended.summary["rows_per_second"] > 0
    assert 0 <= ended.summary["padding_share"] < 0.2
    assert (ended.summary["archive_sha256"], ended.summary["stack"]) == (None, None)
    assert ended.told == "3,000 rows in 47 chunks, 0 of them finished before; 2 workers\n"


@pytest.mark.parametrize("seed", range(2))
def test_killed_at_random_moments_and_started_again_it_loses_and_repeats_no_row(
    program: Path, model: Path, source: Path, whole: Path, tmp_path: Path, seed: int
) -> None:
    """SIGKILL of the whole group, workers included; the output is that of a run left alone, to the byte."""
    random_ = random.Random(seed)
    finished = 0
    for _ in range(3):
        process = start(program, *job(model, source, tmp_path / "out"))
        wait_for_parts(tmp_path / "out", finished + random_.randrange(6), process)
        time.sleep(random_.random() * 0.02)
        kill_group(process)
        finished = len(list((tmp_path / "out").glob("predictions-*")))
    assert finished < len(list(whole.glob("predictions-*"))), "never killed while it worked"
    ended = run(program, *job(model, source, tmp_path / "out"))
    assert ended.code == 0
    assert ended.summary is not None
    assert ended.summary["rows_done_before"] + ended.summary["rows"] == ROWS
    assert contents(tmp_path / "out") == contents(whole)


def test_workers_whose_master_is_killed_do_no_harm(
    program: Path, model: Path, source: Path, whole: Path, tmp_path: Path
) -> None:
    """They finish the chunk they are on, beside the workers of the restart, and end."""
    process = start(program, *job(model, source, tmp_path / "out"))
    wait_for_parts(tmp_path / "out", 3, process)
    process.kill()
    assert run(program, *job(model, source, tmp_path / "out")).code == 0
    process.communicate()
    assert contents(tmp_path / "out") == contents(whole)


@pytest.mark.parametrize("signal_", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_is_finished(
    program: Path, model: Path, source: Path, whole: Path, tmp_path: Path, signal_: signal.Signals
) -> None:
    process = start(program, *job(model, source, tmp_path / "out"))
    wait_for_parts(tmp_path / "out", 3, process)
    process.send_signal(signal_)
    ended = end(process)
    assert ended.code == 130
    assert ended.summary is None
    assert ended.told.splitlines()[1:] == [
        "Interrupted. Finished chunks are kept: the same command goes on where this one stopped."
    ]
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
    assert ended.told.splitlines()[1:] == [
        "worker 0 was killed by signal 9. Finished chunks are kept: the same command goes on where this one stopped."
    ]


def test_a_finished_job_started_again_changes_nothing(model: Path, source: Path, whole: Path) -> None:
    before = contents(whole)
    ended = run_here(*job(model, source, whole))
    assert ended.code == 0
    assert ended.summary is not None
    assert (ended.summary["rows"], ended.summary["rows_done_before"]) == (0, ROWS)
    assert ended.summary["rows_per_second"] is None
    assert contents(whole) == before


def test_a_restart_with_other_things_is_refused(
    program: Path, model: Path, source: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = contents(whole)
    was = json.loads((whole / "job.json").read_text())
    other = write_model(tmp_path / "other", seed=1)
    write_rows(tmp_path / "in" / "pairs.jsonl", map(row, range(5)))
    arguments = job(other, tmp_path / "in", whole, "--chunk-rows", 65, "--batch-rows", 8)
    assert main(list(map(str, arguments))) == 2
    told = capsys.readouterr().err.strip()
    assert told.startswith(
        f"{whole}/job.json: this output was begun with other things, so it cannot be continued: "
        f"model_sha256 was {was['model_sha256']}, is "
    )
    assert told.endswith(
        "; the input differs in pairs.jsonl; chunk_rows was 64, is 65; batch_rows was 16, is 8. "
        "Give them as they were, or another --output."
    )
    assert contents(whole) == before


def test_bad_rows_go_to_a_side_file_with_line_and_reason(model: Path, tmp_path: Path) -> None:
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


def test_too_many_bad_rows_fail_the_run_and_keep_the_output(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", [row(0), {"id": 1}, row(2)])
    ended = run_here(*job(model, tmp_path / "in.jsonl", tmp_path / "out"))
    assert ended.code == 1
    assert ended.told.splitlines()[1:] == ["33.33% of the rows are bad; --max-bad-share allows 1.00%."]
    assert len(read_rows(tmp_path / "out", "predictions")) == 2
    assert (tmp_path / "out" / "manifest.json").exists()


def test_a_folder_is_read_in_the_order_of_its_names_compressed_or_not(model: Path, tmp_path: Path) -> None:
    write_rows(tmp_path / "in" / "b.jsonl", map(row, range(100, 150)))
    text = write_rows(tmp_path / "a.jsonl", map(row, range(100)))
    (tmp_path / "in" / "a.jsonl.gz").write_bytes(gzip.compress(text.read_bytes()))
    write_rows(tmp_path / "in" / "deeper" / "c.jsonl", map(row, range(150, 160)))
    (tmp_path / "in" / "README").write_text("not a row")
    assert run_here(*job(model, tmp_path / "in", tmp_path / "out", "--workers", 1)).code == 0
    assert [answer["id"] for answer in read_rows(tmp_path / "out", "predictions")] == list(range(160))
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    assert [source["name"] for source in manifest["input"]] == ["a.jsonl.gz", "b.jsonl", "deeper/c.jsonl"]


def test_shards_fill_one_output_and_the_last_writes_the_manifest(
    model: Path, source: Path, whole: Path, tmp_path: Path
) -> None:
    first, second = (
        run_here(*job(model, source, tmp_path / "out", "--shard", shard, "--workers", 1)).summary
        for shard in ("1/2", "2/2")
    )
    assert first is not None
    assert second is not None
    assert first["manifest"] is None
    assert first["rows"] + second["rows"] == ROWS
    assert contents(tmp_path / "out") == contents(whole)


def test_an_input_without_rows_is_done_at_once(model: Path, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("\n\n")
    (tmp_path / "empty.jsonl").write_text("")
    for name in ("in", "empty"):
        ended = run_here(*job(model, tmp_path / f"{name}.jsonl", tmp_path / name))
        assert ended.code == 0
        assert ended.summary is not None
        assert ended.summary["manifest"] == {"rows": 0, "answered": 0, "bad": 0}


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    code = main(list(map(str, arguments)))
    return code, capsys.readouterr().err.strip()


def test_a_compressed_file_of_no_bytes_is_an_upload_that_was_cut(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / "in" / "a.jsonl", [row(0)])
    (tmp_path / "in" / "b.jsonl.gz").touch()
    assert refused(capsys, *job(model, tmp_path / "in", tmp_path / "out")) == (
        2,
        "b.jsonl.gz: is empty, as after an upload that was cut. Replace the file, or take it out.",
    )
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_read_is_refused_by_name(
    model: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.jsonl.gz").write_bytes(gzip.compress(source.read_bytes())[:-20])
    nothing = tmp_path / "nothing.jsonl"
    assert refused(capsys, *job(model, nothing, tmp_path / "out")) == (
        2,
        f"--input {nothing}: there is no .jsonl or .jsonl.gz file.",
    )
    assert refused(capsys, *job(model, tmp_path / "bad.jsonl.gz", tmp_path / "out")) == (
        2,
        "bad.jsonl.gz: cannot be read as gzip (Compressed file ended before the end-of-stream marker was reached). "
        "Replace the file, or take it out.",
    )
    assert refused(capsys, *job(model, tmp_path, tmp_path / "out")) == (
        2,
        f"--output {tmp_path / 'out'}: lies inside --input {tmp_path}, so that a restart would read its own "
        "predictions. Give another place.",
    )


def test_a_model_that_is_not_there_or_does_not_load_is_refused(
    model: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, *job(tmp_path, source, tmp_path / "out")) == (
        3,
        f"--model {tmp_path}: settings.json cannot be read (FileNotFoundError: [Errno 2] No such file or directory: "
        f"'{tmp_path}/settings.json'). It must be a built model's folder, with settings.json, "
        "tokenizer.json and the compiled model, or a Triton repository of them.",
    )
    broken = Path(shutil.copytree(model, tmp_path / "broken"))
    (broken / "model.onnx").unlink()
    assert refused(capsys, *job(broken, source, tmp_path / "out"))[1].splitlines()[1] == (
        f"worker 0 failed: --model {broken}: cannot be loaded (FileNotFoundError: {broken} holds no model: none of "
        "model.onnx, model.pt is there.). It must be a built model's folder, with settings.json, tokenizer.json and "
        "the compiled model, or a Triton repository of them. Finished chunks are kept: the same command goes on where "
        "this one stopped."
    )


def test_a_triton_repository_is_a_model_too(model: Path, tmp_path: Path) -> None:
    """The build lays out the ensemble with the tokenizer beside its step and the graph beside its own."""
    for step, file in (("tokenise", "tokenizer.json"), ("model", "model.onnx"), ("postprocess", "settings.json")):
        folder = tmp_path / "repository" / f"tiny_{step}" / "1"
        folder.mkdir(parents=True)
        for name in {file, "settings.json"}:
            shutil.copy(model / name, folder)
    source = write_rows(tmp_path / "in.jsonl", map(row, range(100)))
    assert run_here(*job(model, source, tmp_path / "folder", "--workers", 1)).code == 0
    assert run_here(*job(tmp_path / "repository", source, tmp_path / "repository-out", "--workers", 1)).code == 0
    assert read_rows(tmp_path / "folder", "predictions") == read_rows(tmp_path / "repository-out", "predictions")


def test_a_chunk_whose_files_lack_a_row_is_found_out(
    model: Path, source: Path, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Path(shutil.copytree(whole, tmp_path / "out"))
    file = output / "predictions-000005.jsonl"
    file.write_bytes(file.read_bytes()[:-60])
    code, told = refused(capsys, *job(model, source, output))
    assert code == 1
    assert told.splitlines()[1] == (
        f"{output}: chunk 5 of the input has 64 rows, its files 63 answers and 0 bad rows. "
        "Delete predictions-000005.jsonl and start again."
    )
    file.unlink()
    assert run_here(*job(model, source, output)).code == 0
    assert contents(output) == contents(whole)


@pytest.mark.parametrize(
    "wrong", [["--shard", "3/2"], ["--shard", "0/2"], ["--workers", "0"], ["--max-bad-share", "2"]]
)
def test_wrong_usage_is_exit_code_2(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--model", "m", "--input", "i", "--output", "o", *wrong])
    assert exit_.value.code == 2


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    folder.write("a", b"1")
    with pytest.raises(OSError, match="File name too long"):
        folder.write("b" * 250, b"2")
    assert contents(tmp_path) == {"a": b"1"}


def test_the_first_to_claim_an_output_has_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path)
    assert folder.create("job.json", b"1") == b"1"
    assert folder.create("job.json", b"2") == b"1"
    assert contents(tmp_path) == {"job.json": b"1"}


def test_each_worker_has_one_thread_and_on_neuron_its_own_cores() -> None:
    environment = {"NEURON_RT_NUM_CORES": "4", "HOME": "/"}
    assert {one["OMP_NUM_THREADS"] for one in on_cpu(3, environment)} == {"1"}
    groups = [[0, 1], [2, 3]]

    def cores(workers: int | None) -> list[Any]:
        return [
            (one["NEURON_RT_VISIBLE_CORES"], one["NEURON_RT_NUM_CORES"], one["HOME"])
            for one in on_neuron(groups, workers, environment)
        ]

    assert cores(None) == [("0-1", "2", "/"), ("2-3", "2", "/")]
    assert cores(1) == [("0-1", "2", "/")]
    with pytest.raises(ContainerError) as refusal:
        cores(3)
    assert str(refusal.value) == (
        "--workers 3: the NeuronCores here hold 2 copies of the model, and none is shared. Give at most 2."
    )
