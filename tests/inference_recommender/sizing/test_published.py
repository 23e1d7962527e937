"""`size` on published figures in a file: the counts and the costs that were published with them.

The figures are of "Achieve hyperscale performance for model serving using NVIDIA Triton Inference Server on Amazon
SageMaker" (AWS Machine Learning Blog, May 2022), as a public repository quotes four rows of its table: BERT-large, 512
tokens, 500 ms, 30,000 invocations a minute. The prices of an instance are its costs per hour over its counts.
"""

import json
from pathlib import Path

import pytest

from inference_recommender.__main__ import main

FIGURES = Path(__file__).parent / "goldens" / "published_bert_large.json"
PUBLISHED = {
    ("pt-base", "ml.g4dn.xlarge"): (62, 45.66, False),
    ("trt-db-ig", "ml.g4dn.xlarge"): (10, 7.36, False),
    ("pt-base", "ml.g4dn.12xlarge"): (15, 73.35, False),
    ("trt-db-ig", "ml.g4dn.12xlarge"): (6, 29.34, True),
}
"""Instances, USD per hour, and whether 500 ms are kept."""

INF1_FIGURES = Path(__file__).parent / "goldens" / "published_bert_base_inf1.json"
INF1_PUBLISHED = {
    "bert-base-data-parallel-4": (63_360, 0.060),
    "bert-base-uncased-data-parallel-6": (70_920, 0.054),
    "bert-base-cased-data-parallel-8": (67_260, 0.056),
    "bert-base-uncased-pipeline": (118_080, 0.167),
}
"""Inferences a minute and USD per million, of AWS Neuron's "Inf1 Inference Performance" (Neuron 2.18, April 2024):
BERT-base, 128 tokens, PyTorch, at EC2's prices. Published are inferences a second, and P99 in whole milliseconds."""


def test_the_published_experiments_counts_and_costs(capsys: pytest.CaptureFixture[str]) -> None:
    """Every row is sized, also those that miss the objective; the table was published with no headroom."""
    demand = ("--peak-invocations-per-minute", "30000", "--latency-limit-ms", "500", "--set", "sizing.headroom=0")
    assert main(["size", "--from", str(FIGURES), *demand, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    sized = {
        (one["variant"], one["instance_type"]): (
            one["instance_count"],
            one["cost_per_hour_usd"] and round(one["cost_per_hour_usd"], 2),
            one["meets_objective"],
        )
        for one in found["candidates"]
    }
    assert sized == PUBLISHED
    assert (found["recommended"]["variant"], found["recommended"]["instance_count"]) == ("trt-db-ig", 6)


@pytest.mark.parametrize("variant", INF1_PUBLISHED)
def test_the_published_costs_of_bert_base_on_inferentia(variant: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are of one instance at its capacity: price per hour / inferences per hour · 10⁶."""
    rate, cost = INF1_PUBLISHED[variant]
    demand = ("--peak-invocations-per-minute", str(rate), "--set", "sizing.headroom=0")
    assert main(["size", "--from", str(INF1_FIGURES), *demand, "--json"]) == 0
    (found,) = [one for one in json.loads(capsys.readouterr().out)["candidates"] if one["variant"] == variant]
    assert found["instance_count"] == 1
    assert round(found["cost_per_million_invocations_usd"], 3) == cost
