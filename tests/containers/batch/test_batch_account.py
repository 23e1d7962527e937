"""The account of a batch after its shards, and the model's archive."""

import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from containers.batch import account, archive
from containers.batch.__main__ import main
from containers.container_errors import Unavailable, exit_code_of
from tests.builders import known
from tests.containers.batch.batch_run import contents, row, write_model, write_rows
from tests.containers.batch.test_batch_s3 import objects
from workloads import file_sha256

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
    code = exit_code_of(lambda: account.main(list(map(str, arguments))))
    printed, log = capsys.readouterr()
    return code, json.loads(printed) if printed else None, log.strip()


def test_the_account_counts_every_row_and_adds_the_shards_speeds(
    finished: Path, source: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRICS_STACK", "DuplicatesStack")
    monkeypatch.setenv("METRICS_WORKLOAD", "duplicates")
    arguments = ["--input", source, "--output", finished / "out", "--summaries", finished / "summaries"]
    code, printed, log = run(capsys, *arguments)
    assert (code, log) == (0, "")
    printed = known(printed)
    assert [printed[key] for key in ("rows", "answered", "bad", "bad_share")] == [ROWS, ROWS - 3, 3, 0.01]
    assert {file.name for file in (finished / "summaries").iterdir()} == {"shard-1-of-2.json", "shard-2-of-2.json"}
    speeds = [json.loads(file.read_text())["rows_per_second"] for file in (finished / "summaries").iterdir()]
    assert len(speeds) == 2
    assert printed["rows_per_second"] == pytest.approx(sum(speeds))
    assert (printed["Rows"], printed["BadRows"]) == (ROWS, 3)
    assert printed["RowsPerSecond"] == printed["rows_per_second"]
    (directive,) = printed["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["Workload", "Stack"]]
    code, _, log = run(capsys, *arguments, "--max-bad-share", 0.005)
    assert (code, log) == (1, "1.00% of the rows are bad. --max-bad-share allows 0.50%.")


def test_a_summary_names_its_archive_and_its_stack(
    packed: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With AWS_ENDPOINT_URL the run is not a stack's."""
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


def test_without_finished_chunks_summaries_or_a_stack_there_is_no_speed_and_no_metric(
    packed: Path, finished: Path, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_shard(packed, source, finished / "out", 1, tmp_path) == 0
    for more in ([], ["--summaries", tmp_path]):
        code, printed, _ = run(capsys, "--input", source, "--output", finished / "out", *more)
        counts = {"rows": ROWS, "answered": ROWS - 3, "bad": 3, "bad_share": 0.01, "rows_per_second": None}
        assert (code, printed) == (0, counts)


def unfinished(output: Path) -> None:
    for number in (1, 3, 5):
        (output / f"predictions-{number:06}.jsonl").unlink()


def lost_a_row(output: Path) -> None:
    file = output / "predictions-000001.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[1:]))


def not_started(output: Path) -> None:
    (output / "job.json").unlink()


def other_input(output: Path) -> None:
    job = json.loads((output / "job.json").read_text())
    (output / "job.json").write_text(json.dumps({**job, "input": job["input"][:1]}))


REFUSED: list[tuple[Callable[[Path], None], int, str]] = [
    (
        unfinished,
        1,
        "{output}: 108 rows of the input have no answer (3 chunks have no predictions). Run every shard again with the "
        "same --output: it computes only missing chunks.",
    ),
    (
        lost_a_row,
        1,
        "{output}: chunk 1 has 64 rows, but its files have 62 answers and 1 bad rows. Delete predictions-000001.jsonl "
        "and start again.",
    ),
    (not_started, 2, "--output {output}: there is no job.json. Run the shards first."),
    (
        other_input,
        2,
        "{output}/job.json: this output was made from something else: the input differs in b.jsonl. Use the same "
        "input, model and options, or another --output.",
    ),
]


@pytest.mark.parametrize(("change", "exit_code", "message"), REFUSED)
def test_an_output_that_is_not_the_inputs_fails_the_account(
    change: Callable[[Path], None],
    exit_code: int,
    message: str,
    finished: Path,
    source: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = Path(shutil.copytree(finished / "out", tmp_path / "out"))
    (output / "manifest.json").unlink()
    change(output)
    expected = (exit_code, None, message.format(output=output))
    assert run(capsys, "--input", source, "--output", output) == expected
    assert not (output / "manifest.json").exists()


def test_a_run_in_s3_gives_the_same_files(
    client: Any, packed: Path, source: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client.upload_file(str(packed), "nightly", "models/abc.tar.gz")
    for file in source.iterdir():
        client.upload_file(str(file), "nightly", f"in/2026-11-21/{file.name}")
    places = ["s3://nightly/in/2026-11-21", "s3://nightly/out/2026-11-21"]
    for number in (1, 2):
        assert run_shard("s3://nightly/models/abc.tar.gz", places[0], places[1], number, "s3://nightly/runs/1") == 0
    arguments = ["--input", places[0], "--output", places[1], "--summaries", "s3://nightly/runs/1"]
    code, printed, log = run(capsys, *arguments)
    assert (code, log) == (0, "")
    assert known(printed)["rows_per_second"] > 0
    report = json.loads(client.get_object(Bucket="nightly", Key="runs/1/shard-1-of-2.json")["Body"].read())
    assert report["archive_sha256"] == hashlib.sha256(packed.read_bytes()).hexdigest()
    assert objects(client, "out/2026-11-21/") == contents(finished / "out")


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("s3://nightly/models/none.tar.gz", "there is no such object"),
        ("broken.tar.gz", "cannot be unpacked (it is not gzip)"),
    ],
)
def test_a_missing_or_broken_archive_is_refused(
    location: str,
    reason: str,
    client: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("broken.tar.gz").write_bytes(b"no archive")
    monkeypatch.setattr("sys.argv", ["archive", location, str(tmp_path / "model")])
    assert exit_code_of(archive.main) == 3
    assert capsys.readouterr().err.strip() == (
        f"--model {location}: {reason}. Give a built model: a folder with settings.json, tokenizer.json and the "
        "compiled model, or a Triton repository, or its .tar.gz."
    )


def test_an_archive_with_another_sha256_is_refused(packed: Path, tmp_path: Path) -> None:
    """CDK names an archive in S3 by its sha256. On disk its artifact.json has the sha256."""
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
    with pytest.raises(Unavailable, match=r"its artifact.json is invalid. Build it again\."):
        archive.unpack(str(beside), tmp_path / "model", tmp_path / "copy")
    assert not (tmp_path / "model").exists()
    artifact.write_text(json.dumps({"archive": "model.tar.gz", "archive_sha256": actual}))
    archive.unpack(str(beside), tmp_path / "model", tmp_path / "copy")
    assert contents(tmp_path / "model") == contents(packed.with_name("model"))
