"""The Inference Recommender answer that the SageMaker Python SDK's unit tests record, through `size`.

tests/unit/sagemaker/inference_recommender/constants.py of aws/sagemaker-python-sdk has the figures.
"""

import json
from pathlib import Path

import pytest

from inference_recommender.__main__ import main
from tests.inference_recommender.sizing.builders import job_result, job_text

RECORDED = {"CostPerHour": 0.7360000014305115, "MaxInvocations": 1645, "ModelLatency": 171}
COST_PER_INFERENCE = 7.456940238625975e-06
ONE_INSTANCE = "--peak-invocations-per-minute 1645 --set sizing.headroom=0 --latency-limit-ms 172 --json"


def test_recorded_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.json"
    file.write_text(job_text(job_result(1, "ml.g4dn.xlarge", **RECORDED)))
    assert main(["size", "--from", str(file), *ONE_INSTANCE.split()]) == 0
    (candidate,) = json.loads(capsys.readouterr().out)["candidates"]
    assert (candidate["instance_count"], candidate["model_latency_ms"]) == (1, 171)
    assert candidate["cost_per_hour_usd"] == pytest.approx(RECORDED["CostPerHour"])
    assert candidate["cost_per_million_invocations_usd"] == pytest.approx(COST_PER_INFERENCE * 1e6, rel=1e-6)
    assert candidate["meets_objective"]
