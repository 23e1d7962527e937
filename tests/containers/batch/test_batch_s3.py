"""Input and output in S3, served by moto: the same files as on disk, the same restarts, and conflicts."""

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from containers.batch.s3 import CONFIG, CONFLICT, CONFLICT_WAITS_S, Bucket
from containers.container_errors import Unavailable
from tests.builders import known, message_of
from tests.containers.batch.batch_run import contents, install, row, run, run_here, write_rows

ROWS = 200


def objects(client: Any, prefix: str) -> dict[str, bytes]:
    listed = client.list_objects_v2(Bucket="nightly", Prefix=prefix).get("Contents", ())
    return {
        item["Key"].removeprefix(prefix): client.get_object(Bucket="nightly", Key=item["Key"])["Body"].read()
        for item in listed
    }


def test_a_batch_in_s3_writes_the_same_files_as_on_disk(
    client: Any, environment: dict[str, str], program: Path, model: Path, tmp_path: Path
) -> None:
    text = write_rows(tmp_path / "in" / "pairs.jsonl", map(row, range(ROWS)))
    (tmp_path / "in" / "more.jsonl.gz").write_bytes(gzip.compress(b'{"id": "bad"}\n' * 3))
    for file in (tmp_path / "in").iterdir():
        client.upload_file(str(file), "nightly", f"in/{file.name}")
    client.put_object(Bucket="nightly", Key="in-other/x.jsonl", Body=text.read_bytes())
    common = ["--model", model, "--chunk-rows", 64, "--workers", 1, "--max-bad-share", 0.1]
    on_disk = run_here(*common, "--input", tmp_path / "in", "--output", tmp_path / "out")
    assert on_disk.code == 0
    job = [*common, "--input", "s3://nightly/in", "--output", "s3://nightly/out/day/"]
    in_s3 = run(program, *job, environment=environment)
    assert (in_s3.code, in_s3.log) == (0, on_disk.log)
    assert objects(client, "out/day/") == contents(tmp_path / "out")

    for key in ("predictions-000002.jsonl", "manifest.json"):
        client.delete_object(Bucket="nightly", Key=f"out/day/{key}")
    again = run_here(*job)
    summary = known(again.summary)
    assert (summary["rows"], summary["rows_done_before"]) == (64, ROWS + 3 - 64)
    assert objects(client, "out/day/") == contents(tmp_path / "out")

    other = run_here(*job, "--chunk-rows", 32)
    assert other.code == 2
    assert other.log.startswith("s3://nightly/out/day/job.json: this output was made from something else")


def test_one_object_can_be_the_input(client: Any, model: Path, tmp_path: Path) -> None:
    client.put_object(Bucket="nightly", Key="one/pairs.jsonl", Body=json.dumps(row(1)).encode())
    arguments = ["--model", model, "--input", "s3://nightly/one/pairs.jsonl", "--output", tmp_path / "out"]
    assert run_here(*arguments).code == 0
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["input"][0]["name"] == "pairs.jsonl"


def test_an_empty_prefix_and_a_missing_bucket_are_refused(client: Any, model: Path, tmp_path: Path) -> None:
    nothing = run_here("--model", model, "--input", "s3://nightly/nothing", "--output", tmp_path / "out")
    assert (nothing.code, nothing.log) == (2, "--input s3://nightly/nothing: there is no .jsonl or .jsonl.gz file.\n")
    assert message_of(Unavailable, Bucket.open("s3://no-such-bucket/x").names) == (
        "s3://no-such-bucket/x: An error occurred (NoSuchBucket) when calling the ListObjectsV2 operation: "
        "The specified bucket does not exist"
    )


def test_missing_credentials_or_boto3_are_one_sentence(
    environment: dict[str, str], model: Path, tmp_path: Path
) -> None:
    program = install(tmp_path / "program")
    job = ["--model", model, "--input", "s3://nightly/in", "--output", tmp_path / "out"]
    nobody = {
        **environment,
        "AWS_ACCESS_KEY_ID": "",
        "AWS_SECRET_ACCESS_KEY": "",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
        "AWS_CONFIG_FILE": str(tmp_path / "none"),
    }
    ended = run(program, *job, environment=nobody)
    assert (ended.code, ended.log) == (3, "s3://nightly/in: Unable to locate credentials\n")
    (program / "boto3.py").write_text("raise ModuleNotFoundError(name='boto3')")
    ended = run(program, *job, environment=environment)
    absent = "s3://nightly/in: boto3 is not installed. Install it, or use a path on disk.\n"
    assert (ended.code, ended.log) == (3, absent)


CREATE = {"Bucket": "bucket", "Key": "out/job.json", "Body": b"mine", "ChecksumAlgorithm": "SHA256", "IfNoneMatch": "*"}


@pytest.fixture
def unsent() -> Any:
    make: Any = boto3.client
    return make("s3", config=CONFIG, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")


@pytest.fixture
def stub(unsent: Any) -> Iterator[Stubber]:
    with Stubber(unsent) as stub:
        yield stub
        stub.assert_no_pending_responses()


@pytest.fixture
def slept() -> list[float]:
    return []


@pytest.fixture
def bucket(unsent: Any, slept: list[float]) -> Bucket:
    return Bucket(unsent, "s3://bucket/out", slept.append)


def test_a_claim_in_conflict_is_tried_again(bucket: Bucket, stub: Stubber, slept: list[float]) -> None:
    for _ in range(2):
        stub.add_client_error("put_object", CONFLICT, http_status_code=409, expected_params=CREATE)
    stub.add_response("put_object", {}, CREATE)
    assert bucket.create("job.json", b"mine") == b"mine"
    assert slept == [0.1, 0.2]


@pytest.mark.parametrize(
    ("codes", "waits"), [([CONFLICT, "PreconditionFailed"], 1), ([CONFLICT] * len(CONFLICT_WAITS_S), 6)]
)
def test_a_claim_in_conflict_reads_the_winners_claim(
    codes: list[str], waits: int, bucket: Bucket, stub: Stubber, slept: list[float]
) -> None:
    for code in codes:
        stub.add_client_error("put_object", code, expected_params=CREATE)
    body = StreamingBody(io.BytesIO(b"theirs"), 6)
    stub.add_response("get_object", {"Body": body}, {"Bucket": "bucket", "Key": "out/job.json"})
    assert bucket.create("job.json", b"mine") == b"theirs"
    assert slept == list(CONFLICT_WAITS_S[:waits])


def test_another_error_of_a_claim_is_raised(bucket: Bucket, stub: Stubber) -> None:
    stub.add_client_error("put_object", "AccessDenied", http_status_code=403, expected_params=CREATE)
    with pytest.raises(Unavailable, match=r"^s3://bucket/out: An error occurred \(AccessDenied\)"):
        bucket.create("job.json", b"mine")
