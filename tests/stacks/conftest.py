"""Templates that many tests read. Each is synthesised once for a session, because jsii is slow."""

from pathlib import Path

import pytest
from aws_cdk import Environment

from stacks.context import PRODUCTION
from tests.stacks.miniature import (
    Repository,
    Synthesis,
    as_committed,
    candidate,
    make_ec2_repository,
    make_repository,
    recommend_for_production,
    service_candidate,
)
from workloads import ROOT, workload_names

SHADOW_IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/triton-cpu:25.09"
VIRGINIA = Environment(account="123456789012", region="us-east-1")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_repository(tmp_path)


@pytest.fixture(scope="session")
def unmeasured(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """An endpoint without a recommendation."""
    return make_repository(tmp_path_factory.mktemp("unmeasured")).synthesise()


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """An endpoint with a recommendation measured on SageMaker."""
    repository = make_repository(tmp_path_factory.mktemp("measured"))
    repository.recommend(candidate())
    return repository.synthesise()


@pytest.fixture(scope="session")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """An endpoint in production with every option it may have, in one region."""
    repository = make_repository(tmp_path_factory.mktemp("everything"))
    repository.build("cpu-int8")
    repository.host(
        "tensorrt",
        fallback_instance_types=["ml.g4dn.xlarge"],
        update={"strategy": "canary", "percent": 20},
        scaling={
            "concurrent_requests_per_instance": 8.0,
            "scheduled_minimums": [
                {"schedule": "cron(0 7 ? * MON-FRI *)", "min_capacity": 5, "timezone": "Europe/Berlin"},
                {"schedule": "cron(0 22 ? * MON-FRI *)", "min_capacity": 2, "timezone": "Europe/Berlin"},
            ],
            "scale_in": False,
        },
        network={"kind": "new-vpc", "zone_ids": ["use1-az4", "use1-az6"]},
        data_capture={"percent": 5},
        shadow={"target": "cpu-int8", "instance_type": "ml.c5.xlarge", "percent": 25, "image_uri": SHADOW_IMAGE},
    )
    repository.recommend(candidate(instance_type="ml.g5.xlarge"))
    return repository.synthesise(VIRGINIA, PRODUCTION)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """An ECS service on Inf1, measured on SageMaker."""
    repository = make_ec2_repository(tmp_path_factory.mktemp("service"), "query_intent")
    repository.recommend(service_candidate())
    return repository.synthesise()


@pytest.fixture(scope="session")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """An ECS service on CPU."""
    repository = make_ec2_repository(tmp_path_factory.mktemp("on-cpu"), "query_intent", "cpu")
    repository.recommend(service_candidate(instance_type="c5.2xlarge"))
    return repository.synthesise()


@pytest.fixture(scope="session")
def batch(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """A batch in production: three shards on Inf1."""
    repository = make_ec2_repository(tmp_path_factory.mktemp("batch"), "duplicates")
    repository.change_hosting(shards=3)
    return repository.synthesise(options=PRODUCTION)


@pytest.fixture(scope="session", params=workload_names(ROOT / "workloads"))
def committed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Each workload as its workload.toml says, in production."""
    repository = as_committed(tmp_path_factory.mktemp(request.param), request.param)
    recommend_for_production(repository)
    return repository.synthesise(options=PRODUCTION)
