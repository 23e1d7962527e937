"""The lines of a log that CloudWatch Logs reads metrics from."""

import pytest

from containers.embedded_metrics import LogMetric, document


def test_a_document_names_its_metrics_their_units_and_their_dimensions() -> None:
    metrics = [LogMetric("Rows", "Count", 7), LogMetric("ResponseTime", "Milliseconds", [1.5, 2.5])]
    assert document({"Workload": "duplicates", "Stack": "DuplicatesStack"}, metrics, at_s=1_700_000_000.25) == {
        "_aws": {
            "Timestamp": 1_700_000_000_250,
            "CloudWatchMetrics": [
                {
                    "Namespace": "TransformersInProduction",
                    "Dimensions": [["Workload", "Stack"]],
                    "Metrics": [{"Name": "Rows", "Unit": "Count"}, {"Name": "ResponseTime", "Unit": "Milliseconds"}],
                }
            ],
        },
        "Workload": "duplicates",
        "Stack": "DuplicatesStack",
        "Rows": 7,
        "ResponseTime": [1.5, 2.5],
    }


def test_more_values_than_cloudwatch_takes_are_refused() -> None:
    document({}, [LogMetric("ResponseTime", "Milliseconds", [1.0] * 100)], at_s=0)
    with pytest.raises(ValueError, match=r"^ResponseTime: 101 values; a line holds at most 100\.$"):
        document({}, [LogMetric("ResponseTime", "Milliseconds", [1.0] * 101)], at_s=0)
