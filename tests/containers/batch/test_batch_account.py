"""The account of a batch after its shards: every row of the input is in the output, or the run has failed."""

import hashlib
import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from containers.batch import account, archive
from containers.batch.__main__ import main
from containers.batch.arguments import shard, shard_of_hosts
from containers.errors import Unavailable, exit_code_of
from tests.containers.batch.batch_model import row, write_model, write_rows
from tests.containers.batch.batch_run import contents
from tests.containers.batch.test_batch_s3 import client, environment, objects
from workloads import file_sha256

__all__ = ["client", "environment"]  # fixtures: moto's S3

ROWS = 300


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model as the build leaves it."""
    folder = write_model(tmp_path_factory.mktemp("packed") / "model")
    with tarfile.open(folder.with_name("model.tar.gz"), "w:gz") as tar:
        for file in folder.iterdir():
            tar.add(file, file.name)
    return folder.with_name("model.tar.gz")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 rows, 3 of them bad."""
    folder = tmp_path_factory.mktemp("source")
    write_rows(folder / "a.jsonl", [row(number) if number % 100 else {"id": number} for number in range(200)])
    write_rows(folder / "b.jsonl", [row(number) if number % 100 else {"id": number} for number in range(200, ROWS)])
    return folder


def run_shard(model: object, source: object, output: object, number: int, summaries: object) -> int:
    at = ["--shard", f"{number}/2", "--summary", f"{summaries}/"]
    common = ["--model", model, "--input", source, "--output", output, "--chunk-rows", 64, "--workers", 1]
    return main(list(map(str, [*common, *at, "--max-bad-share", 1])))


@pytest.fixture(scope="module")
def finished(packed: Path, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs both shards, which leaves out/ and summaries/."""
    folder = tmp_path_factory.mktemp("finished")
    for number in (1, 2):
        assert run_shard(packed, source, folder / "out", number, folder / "summaries") == 0
    return folder


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any] | None, str]:
    capsys.readouterr()
    code = account.main(list(map(str, arguments)))
    printed, told = capsys.readouterr()
    return code, json.loads(printed) if printed else None, told.strip()


def test_every_row_is_accounted_for_and_the_shards_speeds_add_up(
    finished: Path, source: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRICS_STACK", "DuplicatesStack")
    monkeypatch.setenv("METRICS_WORKLOAD", "duplicates")
    arguments = ["--input", source, "--output", finished / "out", "--summaries", finished / "summaries"]
    code, printed, told = run(capsys, *arguments)
    assert (code, told) == (0, "")
    assert printed is not None
    assert [printed[key] for key in ("rows", "answered", "bad", "bad_share")] == [ROWS, ROWS - 3, 3, 0.01]
    assert {file.name for file in (finished / "summaries").iterdir()} == {"shard-1-of-2.json", "shard-2-of-2.json"}
    speeds = [json.loads(file.read_text())["rows_per_second"] for file in (finished / "summaries").iterdir()]
    assert len(speeds) == 2
    assert printed["rows_per_second"] == pytest.approx(sum(speeds))
    assert (printed["Rows"], printed["BadRows"]) == (ROWS, 3)
    assert printed["RowsPerSecond"] == printed["rows_per_second"]
    (directive,) = printed["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["Workload", "Stack"]]


def test_a_report_says_of_what_archive_it_is_and_which_stacks_run_made_it(
    packed: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On an account on this machine no stack's instance answers: AWS_ENDPOINT_URL tells."""
    monkeypatch.setenv("METRICS_STACK", "DuplicatesStack")
    stacks = []
    for number, endpoint in ((1, None), (2, "http://localhost:1")):
        if endpoint:
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        assert run_shard(packed, source, tmp_path / "out", number, tmp_path / "summaries") == 0
        report = json.loads((tmp_path / "summaries" / f"shard-{number}-of-2.json").read_text())
        assert report["archive_sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
        stacks.append(report["stack"])
    assert stacks == ["DuplicatesStack", None]


def test_without_summaries_or_a_stack_there_is_neither_a_speed_nor_a_metric(
    finished: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, printed, _ = run(capsys, "--input", source, "--output", finished / "out")
    assert (code, printed) == (
        0,
        {"rows": ROWS, "answered": ROWS - 3, "bad": 3, "bad_share": 0.01, "rows_per_second": None},
    )


def test_shards_that_found_nothing_left_to_do_have_no_speed(
    packed: Path, finished: Path, source: Path, tmp_path: Path
) -> None:
    assert run_shard(packed, source, finished / "out", 1, tmp_path) == 0
    assert account.shard_rates(str(tmp_path)) == []


def test_a_shard_that_did_not_finish_fails_the_account(
    packed: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_shard(packed, source, tmp_path / "out", 1, tmp_path) == 0
    assert run(capsys, "--input", source, "--output", tmp_path / "out") == (
        1,
        None,
        f"{tmp_path / 'out'}: 108 rows of the input are neither answered nor refused (3 chunks have no predictions). "
        "Run every shard again, with the same --output: each does what is missing.",
    )
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_file_that_lost_a_row_fails_the_account(
    finished: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = Path(shutil.copytree(finished / "out", tmp_path / "out"))
    file = output / "predictions-000001.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))
    code, _, told = run(capsys, "--input", source, "--output", output)
    assert (code, told) == (
        1,
        f"{output}: chunk 1 of the input has 64 rows, its files 62 answers and 1 bad rows. "
        "Delete predictions-000001.jsonl and start again.",
    )


def test_an_input_that_has_grown_since_is_not_the_one_answered(
    finished: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grown = Path(shutil.copytree(source, tmp_path / "in"))
    write_rows(grown / "c.jsonl", [row(1)])
    code, _, told = run(capsys, "--input", grown, "--output", finished / "out")
    assert (code, told) == (
        2,
        f"{finished / 'out'}/job.json: this output was begun with other things, so it cannot be continued: the input "
        "differs in c.jsonl. Give them as they were, or another --output.",
    )


def test_more_bad_rows_than_allowed_fail_the_account(
    finished: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--input", source, "--output", finished / "out", "--max-bad-share", 0.005]
    code, printed, told = run(capsys, *arguments)
    assert (code, told) == (1, "1.00% of the rows are bad; --max-bad-share allows 0.50%.")
    assert printed is not None


def test_an_output_that_was_not_begun_is_refused(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "--input", source, "--output", tmp_path) == (
        2,
        None,
        f"--output {tmp_path}: there is no job.json, so nothing was made there. Run the shards first.",
    )


def test_in_s3_model_input_output_and_summaries_give_the_same(
    client: Any, packed: Path, source: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.upload_file(str(packed), "nightly", "models/abc.tar.gz")
    for file in source.iterdir():
        client.upload_file(str(file), "nightly", f"in/2026-11-21/{file.name}")
    places = ["s3://nightly/in/2026-11-21", "s3://nightly/out/2026-11-21"]
    for number in (1, 2):
        assert run_shard("s3://nightly/models/abc.tar.gz", places[0], places[1], number, "s3://nightly/runs/1") == 0
    arguments = ["--input", places[0], "--output", places[1], "--summaries", "s3://nightly/runs/1"]
    code, printed, told = run(capsys, *arguments)
    assert (code, told) == (0, "")
    assert printed is not None
    assert printed["rows_per_second"] > 0
    report = json.loads(client.get_object(Bucket="nightly", Key="runs/1/shard-1-of-2.json")["Body"].read())
    assert report["archive_sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert objects(client, "out/2026-11-21/") == contents(finished / "out")


def test_an_archive_that_is_not_there_or_is_none_is_refused(
    client: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = (
        "It must be a built model's folder, with settings.json, tokenizer.json and the compiled model, or a Triton "
        "repository of them."
    )
    (tmp_path / "broken.tar.gz").write_bytes(b"no archive")
    for location, reason in (
        ("s3://nightly/models/none.tar.gz", "there is no such object"),
        (str(tmp_path / "broken.tar.gz"), "cannot be unpacked (it is not gzip)"),
    ):
        monkeypatch.setattr("sys.argv", ["archive", location, str(tmp_path / "model")])
        assert exit_code_of(archive.main) == 3
        assert capsys.readouterr().err.strip() == f"--model {location}: {reason}. {advice}"


def test_an_archive_that_is_another_than_is_known_is_refused_and_leaves_nothing(packed: Path, tmp_path: Path) -> None:
    """A key in S3 that CDK made is the archive's sha256; on disk the artifact.json beside it tells it."""
    actual, known = file_sha256(packed), "0" * 64
    why = rf"cannot be unpacked \(its sha256 is {actual}, not {known}: it is damaged, or another archive\)\."
    named = Path(shutil.copy(packed, tmp_path / f"{known}.tar.gz"))
    with pytest.raises(Unavailable, match=why):
        archive.unpack(str(named), tmp_path / "model", tmp_path / "copy")
    beside = Path(shutil.copy(packed, tmp_path / "model.tar.gz"))
    artifact = tmp_path / "artifact.json"
    artifact.write_text(json.dumps({"archive": "model.tar.gz", "archive_sha256": known}))
    with pytest.raises(Unavailable, match=why):
        archive.unpack(str(beside), tmp_path / "model", tmp_path / "copy")
    artifact.write_text("{}")
    with pytest.raises(Unavailable, match=r"the artifact.json beside it is none. Build it again\."):
        archive.unpack(str(beside), tmp_path / "model", tmp_path / "copy")
    assert not (tmp_path / "model").exists()
    artifact.write_text(json.dumps({"archive": "model.tar.gz", "archive_sha256": actual}))
    archive.unpack(str(beside), tmp_path / "model", tmp_path / "copy")
    assert (tmp_path / "model" / "settings.json").exists()


def test_an_archive_is_unpacked_where_the_server_looks_for_it(
    packed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["archive", str(packed), str(tmp_path / "model")])
    assert exit_code_of(archive.main) == 0
    assert contents(tmp_path / "model") == contents(packed.with_name("model"))


def test_a_host_of_a_sagemaker_job_takes_the_shard_of_its_place(tmp_path: Path) -> None:
    file = tmp_path / "resourceconfig.json"
    for host, place in (("algo-1", 0), ("algo-2", 1), ("algo-3", 2)):
        file.write_text(json.dumps({"current_host": host, "hosts": ["algo-3", "algo-1", "algo-2"]}))
        assert shard_of_hosts(file) == (place, 3)
    with pytest.raises(ValueError):  # noqa: PT011  argparse says which argument
        shard("hosts")
