"""The command by which a CPU's measured rate becomes a scenario of the published saving."""

from pathlib import Path

import pytest

from benchmarks.cpu_baseline import scenario
from inference_recommender.__main__ import main


def test_a_measured_rate_is_compared_with_what_aws_states_of_inferentia(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, *arguments = scenario(tmp_path, 94.6, "measured on a machine", "c5.xlarge")
    assert program == "inference_recommender"
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "A row costs 85.0 % less than on the baseline." in said
    assert "Baseline: 94.6 rows/s on c5.xlarge: measured on a machine." in said
