"""A batch's shards and instance type: the recommendation's, where it is of what is deployed, else workload.toml's."""

from pathlib import Path
from typing import Any

import pytest

from stacks.context import PRODUCTION, Options
from stacks.deployment import Shards, plan_shards
from stacks.workload_stack import BuiltArtifact, NotMeasured, WorkloadStackProps
from tests.builders import message_of
from tests.stacks.miniature import Repository, make_ec2_repository
from workloads import BatchFleet, BatchRecommendation, ModelArtifact, ScheduledBatchHosting, ThroughputObjective
from workloads.errors import InvalidDocument

COMMAND = "`python -m inference_recommender size --workload duplicates --from SUMMARIES --recommend`"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """The workload as it is committed, with three shards in workload.toml."""
    return make_ec2_repository(tmp_path, "duplicates")


def planned(repository: Repository, options: Options | None = None) -> Shards:
    folder = repository.folder
    file = repository.artifact_file("inf1")
    props = WorkloadStackProps(
        root=repository.root,
        folder=folder,
        built=BuiltArtifact(artifact=ModelArtifact.from_json(file), archive_file=file.with_name("model.tar.gz")),
        recommendation=None,
        options=options or Options(),
    )
    assert isinstance(folder.workload.hosting, ScheduledBatchHosting)
    return plan_shards(props, folder.workload.hosting)


def recommend(repository: Repository, known_by: str = "stack", **changes: Any) -> None:
    fleet = BatchFleet(
        instance_type="inf1.2xlarge",
        rows_per_second=1100.0,
        known_by=known_by,  # type: ignore[arg-type]
        source="9 reports",
        shards=10,
        shard_parts={"peak": 8, "headroom": 2},
        cost_per_hour_usd=3.62,
        cost_per_million_rows_usd=0.09,
        cost_reason="Listed.",
    )
    values: dict[str, Any] = {
        "workload": "duplicates",
        "target": "inf1",
        "archive_sha256": ModelArtifact.from_json(repository.artifact_file("inf1")).archive_sha256,
        "objective": ThroughputObjective(rows_per_second=8800.0),
        "rows_per_run": None,
        "recommended": fleet,
        "reason": "No baseline was named.",
        "region": "us-east-1",
        "decided_at": "2026-11-23T04:00:00+00:00",
    }
    BatchRecommendation(**{**values, **changes}).write_json(repository.recommendation_file)


def test_without_a_recommendation_the_shards_are_the_workloads_own(repository: Repository) -> None:
    shards = planned(repository, PRODUCTION)
    assert (shards.count, shards.choice.instance_type, shards.warnings) == (3, "inf1.6xlarge", ())


def test_shards_and_instance_type_are_the_recommendations_in_production_too(repository: Repository) -> None:
    recommend(repository)
    shards = planned(repository, PRODUCTION)
    assert (shards.count, shards.choice.instance_type, shards.warnings) == (10, "inf1.2xlarge", ())
    assert (shards.choice.file, shards.choice.key) == (repository.recommendation_file, "recommended.instance_type")


def test_an_ignored_recommendation_leaves_the_workloads_shards(repository: Repository) -> None:
    recommend(repository)
    assert planned(repository, Options(recommendation="ignore")).count == 3


def test_a_recommendation_of_another_archive_is_refused(repository: Repository) -> None:
    recommend(repository, archive_sha256="0" * 64)
    built = ModelArtifact.from_json(repository.artifact_file("inf1")).archive_sha256[:12]
    assert message_of(NotMeasured, planned, repository) == (
        f"{repository.recommendation_file}: archive_sha256: was measured on the artifact 000000000000…, but the one to "
        f"deploy is {built}… (inf1). Deploy it with -c recommendation=ignore and measure a run of it: {COMMAND}."
    )


def test_a_local_measurement_warns_in_beta_and_is_rejected_in_production(repository: Repository) -> None:
    recommend(repository, known_by="local")
    (warning,) = planned(repository).warnings
    assert warning.text == message_of(NotMeasured, planned, repository, PRODUCTION)
    assert warning.text == (
        f"{repository.recommendation_file}: recommended.known_by: is 'local' (9 reports), and production requires the "
        f"reports of a stack's run: {COMMAND}."
    )


def test_a_changed_objective_warns(repository: Repository) -> None:
    recommend(repository, objective=ThroughputObjective(rows_per_second=4400.0))
    (warning,) = planned(repository).warnings
    assert warning.text == (
        f"{repository.recommendation_file}: objective: was sized for 4,400 rows a second, which is not what "
        f"{repository.workload_file} says. Size it again with {COMMAND}."
    )


def test_a_recommendation_needs_a_measured_rate(repository: Repository) -> None:
    recommend(repository)
    file = repository.recommendation_file
    file.write_text(file.read_text("utf-8").replace('"stack"', '"stated"'), "utf-8")
    message = message_of(InvalidDocument, planned, repository)
    assert "recommended.known_by: got 'stated', but a recommendation needs a measured rate." in message


def test_the_template_has_the_recommendations_shards_on_its_instance_type(repository: Repository) -> None:
    recommend(repository)
    synthesis = repository.synthesise(options=PRODUCTION)
    assert '"10/10"' in str(synthesis.only("AWS::StepFunctions::StateMachine")["DefinitionString"])
    assert synthesis.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["InstanceType"] == "inf1.2xlarge"
    assert synthesis.only("AWS::AutoScaling::AutoScalingGroup")["MaxSize"] == "10"
