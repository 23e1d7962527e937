"""The last lines of a test's container, from wherever SageMaker has put them."""

from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from inference_recommender.jobs.container_log import LINES, fetch_log

OF_ENDPOINT = "/aws/sagemaker/Endpoints/sm-epc-1"
OF_JOBS = "/aws/sagemaker/InferenceRecommendationsJobs"


class FakeLogs:
    """Streams by group; `refusals` says with which code a group answers instead."""

    def __init__(self, groups: Mapping[str, Mapping[str, list[str]]], **refusals: str) -> None:
        self._groups = groups
        self._code = refusals.get("code", "ResourceNotFoundException")

    def describe_log_streams(self, **request: Any) -> Mapping[str, Any]:
        if request["logGroupName"] not in self._groups:
            raise ClientError({"Error": {"Code": self._code, "Message": "no"}}, "DescribeLogStreams")
        prefix = request.get("logStreamNamePrefix", "")
        names = [name for name in self._groups[request["logGroupName"]] if name.startswith(prefix)]
        return {"logStreams": [{"logStreamName": name} for name in names]}

    def get_log_events(self, **request: Any) -> Mapping[str, Any]:
        lines = self._groups[request["logGroupName"]][request["logStreamName"]]
        return {"events": [{"message": line} for line in lines[-request["limit"] :]]}


def test_the_endpoints_own_log_comes_first_and_only_its_last_lines() -> None:
    lines = [f"line {number}" for number in range(20)]
    logs = FakeLogs({OF_ENDPOINT: {"AllTraffic/i-1": lines}, OF_JOBS: {"job-1/Endpoint/sm-epc-1": ["other"]}})
    assert fetch_log(logs, "job-1", "sm-epc-1") == lines[-LINES:]


def test_else_the_jobs_log_has_a_stream_for_it() -> None:
    streams = {"job-1/execution": ["no"], "job-1/Endpoint/sm-epc-1": ["out of memory\nkilled\n"]}
    assert fetch_log(FakeLogs({OF_JOBS: streams}), "job-1", "sm-epc-1") == ["out of memory", "killed"]


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException"])
def test_a_log_that_is_not_there_or_not_ours_to_read_is_none(code: str) -> None:
    assert fetch_log(FakeLogs({}, code=code), "job-1", "sm-epc-1") == []


def test_any_other_refusal_is_not_swallowed() -> None:
    with pytest.raises(ClientError):
        fetch_log(FakeLogs({}, code="ThrottlingException"), "job-1", "sm-epc-1")
