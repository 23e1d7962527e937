"""Prices of the catalogue, of the job and of the Price List API, and published costs."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from inference_recommender.__main__ import main
from inference_recommender.sizing import prices
from inference_recommender.sizing.prices import Catalogue, hourly_usd, named_types, product_query
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.server import serving
from tests.inference_recommender.sizing.builders import job_result, job_text
from workloads import ROOT, load_workload, workload_names

INSTANCE_TYPE = re.compile(r"\bml\.(?:c5|m5|g4dn|g5|inf1|inf2)\.\d*x?large\b")


def product(*usd: str, unit: str = "Hrs") -> str:
    """Returns a product as GetProducts documents it, with an on-demand term for each price."""

    def term(price: str, unit: str = unit) -> dict[str, Any]:
        return {"priceDimensions": {"RATE": {"unit": unit, "pricePerUnit": {"USD": price}}}}

    on_demand = {f"SKU1.TERM{number}": term(price) for number, price in enumerate(usd)}
    return json.dumps({"terms": {"OnDemand": on_demand, "Reserved": {"SKU1.RES": term("0.1", "Hrs")}}})


@pytest.mark.parametrize(
    ("name", "service", "fields"),
    [
        ("ml.g5.xlarge", "AmazonSageMaker", {"productFamily": "ML Instance", "platoinstancetype": "Hosting"}),
        ("inf1.6xlarge", "AmazonEC2", {"operatingSystem": "Linux", "tenancy": "Shared", "capacitystatus": "Used"}),
    ],
)
def test_the_query_of_a_sagemaker_type_and_of_an_ec2_type(name: str, service: str, fields: dict[str, str]) -> None:
    query = product_query("eu-west-1", name)
    filters = {one["Field"]: one["Value"] for one in query["Filters"]}
    assert query["ServiceCode"] == service
    assert filters.items() >= {**fields, "regionCode": "eu-west-1"}.items()
    assert name in filters.values()


@pytest.mark.parametrize(
    ("products", "hourly"),
    [
        ([product("1.4080000000")], (1.408,)),
        ([product("1.408"), product("1.4080000000")], (1.408,)),
        ([product("0.0000000000"), product("2.5")], (2.5,)),
        ([product("2.5"), product("1.5")], (1.5, 2.5)),
        ([product("0.01", unit="GB-Mo")], ()),
        (['{"product": {}, "terms": {"Reserved": {}}}'], ()),
        ([], ()),
    ],
)
def test_only_on_demand_prices_per_hour_count(products: list[str], hourly: tuple[float, ...]) -> None:
    assert hourly_usd(products) == hourly


def test_every_committed_price_has_its_source() -> None:
    for listed in prices.committed_catalogue().regions.values():
        for name, listing in listed.items():
            assert ("SageMaker" if name.startswith("ml.") else "EC2") in listing.source


def test_every_type_in_a_workload_a_golden_or_the_docs_has_a_price_or_a_reason_without() -> None:
    catalogue, goldens = prices.committed_catalogue(), ROOT / "tests/inference_recommender"
    files = [*goldens.rglob("goldens/*.json"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.html")]
    named = {name for file in files for name in INSTANCE_TYPE.findall(file.read_text("utf-8"))}
    named |= named_types(load_workload(name).workload for name in workload_names(ROOT / "workloads"))
    assert {"inf1.6xlarge", "ml.inf2.xlarge", "ml.g4dn.12xlarge"} < named
    assert named - {*catalogue.instance_types, *catalogue.unlisted} == set()


@pytest.fixture
def catalogue_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, credentials: None) -> Iterator[Path]:
    """A copy of the committed catalogue that the commands read and write."""
    file = tmp_path / "prices.json"
    file.write_text(prices.CATALOGUE_FILE.read_text("utf-8"), "utf-8")
    monkeypatch.setattr(prices, "CATALOGUE_FILE", file)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    yield file
    prices.committed_catalogue.cache_clear()


def refreshed(monkeypatch: pytest.MonkeyPatch, answer: Callable[[bytes], tuple[int, bytes]], *arguments: str) -> int:
    with serving(answer) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_PRICING", server.url.removesuffix("/invocations"))
        return main(["size", "--refresh-prices", *arguments])


def test_refresh_reads_all_pages_and_sizes_with_the_new_prices(
    catalogue_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def answer(body: bytes) -> tuple[int, bytes]:
        last = "NextToken" in json.loads(body)
        found = [product("1"), product("2")] if b"ml.g5.xlarge" in body else [product("0.26")]
        page = {"PriceList": found} if last else {"PriceList": [], "NextToken": "more"}
        return 200, json.dumps({"FormatVersion": "aws_v1", **page}).encode()

    job = tmp_path / "job.json"
    figures: dict[str, Any] = {"MaxInvocations": 100, "ModelLatency": 1}
    job.write_text(job_text(job_result(**figures), job_result(instance_type="ml.g5.xlarge", **figures), JobArn=None))
    evidence = ("--from", str(job), "--region", "eu-west-1", "--peak-invocations-per-minute", "60", "--json")
    before = prices.committed_catalogue().regions["us-east-1"]
    assert refreshed(monkeypatch, answer, *evidence) == 0
    shown = capsys.readouterr()
    assert shown.err == (
        "Warning: ml.g5.xlarge in eu-west-1: the Price List API has 2 prices (1, 2) per hour; nothing was written for "
        f"it.\n1 prices written for review: {catalogue_file}\n"
    )
    assert json.loads(shown.out)["recommended"]["cost_per_hour_usd"] == 0.26
    written = Catalogue.from_json(catalogue_file)
    listing = written.regions["eu-west-1"]["ml.c5.xlarge"]
    assert (listing.usd_per_hour, listing.source) == (0.26, "AWS Price List API, AmazonSageMaker Hosting, on demand")
    assert written.regions["us-east-1"] == before


def test_a_refresh_without_any_price_leaves_the_file(
    catalogue_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = catalogue_file.read_text("utf-8")
    empty = (200, b'{"FormatVersion": "aws_v1", "PriceList": []}')
    assert refreshed(monkeypatch, lambda body: empty, "--region", "eu-west-1") == 1
    assert catalogue_file.read_text("utf-8") == before
    assert (
        "Warning: ml.g5.xlarge in eu-west-1: the Price List API has no price per hour; nothing was written for it.\n"
    ) in capsys.readouterr().err


def test_a_refusal_of_the_api_is_one_sentence(
    catalogue_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = b'{"__type": "AccessDeniedException", "message": "no pricing:GetProducts"}'
    assert refreshed(monkeypatch, lambda body: (400, refusal)) == 3
    assert capsys.readouterr().err == "AWS refused GetProducts: AccessDeniedException: no pricing:GetProducts\n"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"usd_per_hour": -1.4}, "usd_per_hour: got -1.4. Input should be greater than 0."),
        ({"until": "2027"}, "until: unknown key. Allowed here: collected, source, usd_per_hour."),
        (
            {"collected": "lately"},
            'collected: got "lately". Input should be a valid date in the format YYYY-MM-DD, input is too short.',
        ),
    ],
)
def test_an_edited_catalogue_is_refused_with_its_key(
    catalogue_file: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], why: str
) -> None:
    listing = {"usd_per_hour": 1.4, "source": "s", "collected": "2026-11-20", **change}
    catalogue_file.write_text(json.dumps({"regions": {"us-east-1": {"ml.g5.xlarge": listing}}}), "utf-8")
    assert main(["size", "--explain"]) == 2
    assert capsys.readouterr() == ("", f"{catalogue_file}: regions.us-east-1.ml.g5.xlarge.{why}\n")


def test_explain_without_evidence_prints_the_catalogue(catalogue_file: Path, cli: Cli) -> None:
    shown = cli.out("size", "--explain")
    assert [line for line in shown.splitlines() if line.split()[:2] == ["us-east-1", "ml.g5.xlarge"]]
    assert "ml.inf1.xlarge" in shown
    assert cli.json("size", "--explain", "--json") == json.loads(catalogue_file.read_text("utf-8"))


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


def test_the_published_experiments_counts_and_costs(cli: Cli) -> None:
    """Every row is sized, also those that miss the objective; the table was published with no headroom."""
    demand = ("--peak-invocations-per-minute", "30000", "--latency-limit-ms", "500", "--set", "sizing.headroom=0")
    found = cli.json("size", "--from", str(FIGURES), *demand, "--json")
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
def test_the_published_costs_of_bert_base_on_inferentia(variant: str, cli: Cli) -> None:
    """They are of one instance at its capacity: price per hour / inferences per hour · 10⁶."""
    rate, cost = INF1_PUBLISHED[variant]
    demand = ("--peak-invocations-per-minute", str(rate), "--set", "sizing.headroom=0")
    (found,) = [
        one
        for one in cli.json("size", "--from", str(INF1_FIGURES), *demand, "--json")["candidates"]
        if one["variant"] == variant
    ]
    assert found["instance_count"] == 1
    assert round(found["cost_per_million_invocations_usd"], 3) == cost
