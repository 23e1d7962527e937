"""A preflight's questions follow from the workloads' files, and agree with what the templates need."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from model_build.remote.request import plan_remote
from stacks.__main__ import chosen, trusts
from stacks.context import ReleaseSource, Stage
from stacks.ecs.zones import SharedZones
from stacks.preflight.checks import BUILDS_AT_ONCE, Check, plan
from stacks.preflight.questions import (
    AMI_ROOT,
    OLDEST_BOOTSTRAP,
    AmiParameter,
    Connection,
    Image,
    MayDo,
    Offered,
    Question,
    Quota,
    ServiceRole,
    Trusts,
)
from tests.builders import known, message_of
from tests.model_build.remote.remote_account import site
from tests.stacks.miniature import as_committed, candidate, make_repository
from tests.stacks.templates import SNAPSHOTS
from workloads import ROOT, UsageError, WorkloadFolder, load_workload, own_images, workload_names

MEASURED = "tests of a recommender job at once, beside the stack's own endpoint"
CONNECTION = "arn:aws:codeconnections:us-east-1:123456789012:connection"
SOURCE = ReleaseSource(repository="example/models", connection_arn=CONNECTION)


@pytest.fixture
def unmeasured(workloads_copy: Path) -> WorkloadFolder:
    return load_workload("spellcheck", workloads_copy)


def questions(*names: str, stage: Any = "beta") -> list[Question]:
    return [check.question for check in plan([load_workload(name) for name in names], stage)]


def quotas(*names: str, stage: Any = "beta") -> list[tuple[str, int, str]]:
    return [(q.quota, q.needed, q.why) for q in questions(*names, stage=stage) if isinstance(q, Quota)]


def only(kind: type[Any], asked: list[Question]) -> Any:
    (found,) = (question for question in asked if isinstance(question, kind))
    return found


def quota(checks: Iterable[Check], name: str) -> tuple[int, list[str]]:
    """Returns what is needed of a quota, and the reason of each part."""
    (found,) = (
        check.question for check in checks if isinstance(check.question, Quota) and check.question.quota == name
    )
    return found.needed, [part.split(": ", 1)[-1] for part in found.why.split("; ")]


def template(stack: str) -> dict[str, Any]:
    return dict(json.loads((SNAPSHOTS / f"{stack}.template.json").read_text("utf-8")))


def test_an_endpoint_without_a_recommendation_needs_one_instance_and_another_for_its_update(
    unmeasured: WorkloadFolder,
) -> None:
    one = "1 at the peak and 1 beside them while a blue/green update runs both fleets"
    assert quota(plan([unmeasured], "beta"), "ml.c5.xlarge for endpoint usage") == (2 + 1, [one, MEASURED])
    assert quota(plan([unmeasured], "production"), "ml.c5.xlarge for endpoint usage")[0] == 4 + 1


def test_a_measured_fleet_is_asked_for_at_its_largest(tmp_path: Path) -> None:
    repository = make_repository(tmp_path)
    repository.recommend(candidate(instance_type="ml.g5.xlarge"))
    folder = repository.folder
    recommended = known(known(folder.recommendation()).recommended)
    most = known(recommended.autoscaling).max_capacity
    checks = plan([folder], "beta")
    asked = [check.question for check in checks]
    assert quota(checks, "ml.g5.xlarge for endpoint usage")[0] == 2 * most
    assert only(ServiceRole, asked).service == "sagemaker.application-autoscaling.amazonaws.com"


@pytest.mark.parametrize("stage", ["beta", "production"])
def test_a_shadow_has_instances_in_every_stage(tmp_path: Path, stage: Stage) -> None:
    repository = make_repository(tmp_path)
    repository.host("cpu", shadow={"target": "cpu-int8", "instance_type": "ml.g5.xlarge", "instance_count": 3})
    checks = plan([repository.folder], stage)
    assert quota(checks, "ml.g5.xlarge for endpoint usage") == (3, ["the shadow variant"])


def test_a_rolling_update_needs_a_batch_and_not_a_second_fleet(tmp_path: Path) -> None:
    repository = make_repository(tmp_path)
    repository.host("cpu", update={"strategy": "rolling", "percent": 25}, min_instances_in_production=4)
    name = "ml.c5.xlarge for endpoint usage"
    batch = "4 at the peak and 1 beside them while a rolling update replaces a batch"
    assert quota(plan([repository.folder], "production"), name) == (5 + 1, [batch, MEASURED])
    assert quota(plan([repository.folder], "beta"), name)[0] == 2 + 1, "an update in beta is blue/green"


def test_quotas_of_ec2_are_vcpus_and_add_up_over_the_stacks() -> None:
    shards, service = "vCPUs of 3 inf1.6xlarge, one for each shard", "vCPUs of 1 inf1.6xlarge at the peak, and as many "
    folders = [load_workload(name) for name in ("duplicates", "query_intent")]
    name = "Running On-Demand Inf instances"
    assert quota(plan(folders[:1], "beta"), name) == (72, [shards])
    assert quota(plan(folders, "beta"), name) == (72 + 48, [shards, f"{service}during an update"])


def test_a_remote_build_needs_a_processing_job_on_each_gpu_or_a_cpu_for_inferentia() -> None:
    processing = {
        name: [quota for quota, _, _ in quotas(name) if quota.endswith("for processing job usage")]
        for name in ("spellcheck", "question_answering")
    }
    for name, listed in processing.items():
        folder = load_workload(name)
        jobs = plan_remote(folder, folder.workload.hosting.target, site())
        assert listed == [f"{job.instance_type} for processing job usage" for job in jobs]


@pytest.mark.parametrize(("values", "at_once"), [('"1", "2"', 2), ('"1", "2", "3"', 3)])
@pytest.mark.parametrize("most", [3, 1])
def test_a_jobs_tests_need_instances_of_every_candidate_at_once(
    edit_workload: Callable[..., WorkloadFolder], values: str, at_once: int, most: int
) -> None:
    keys = f"[recommender]\nparallel_tests = {most}\nenvironment = {{ THREADS = [{values}] }}\n"
    checks = plan([edit_workload("spellcheck", ("[traffic.production]", f"{keys}\n[traffic.production]"))], "beta")
    assert quota(checks, "ml.g6.xlarge for endpoint usage") == (min(at_once, most), [MEASURED])


def test_a_release_needs_both_stages_and_the_check_on_the_chip() -> None:
    folder = load_workload("question_answering")
    fleets = [f"{n} at the peak and {n} beside them while a blue/green update runs both fleets" for n in (1, 2)]
    chip = "the temporary endpoint that records the model's outputs on its chip"
    checks = plan([folder], "beta", {folder.workload.release_stack_name: SOURCE})
    assert quota(checks, "ml.inf1.xlarge for endpoint usage") == (
        2 + 1 + 4 + 1,
        [fleets[0], MEASURED, f"{fleets[1]}, in production", chip],
    )


def test_a_pipeline_is_checked_with_its_workload() -> None:
    source = {"release-repository": SOURCE.repository, "release-connection": f"{CONNECTION}/{'0' * 8}-{'0' * 27}"}
    every = [load_workload(name) for name in workload_names(ROOT / "workloads")]
    folders, releases = chosen(["SpellcheckReleaseStack"], every, source.get)
    assert [folder.workload.name for folder in folders] == ["spellcheck"]
    assert list(releases) == ["SpellcheckReleaseStack"]


def test_pipelines_need_as_many_builds_at_once_as_do_not_exceed_codebuilds_queue() -> None:
    folders = [load_workload(name) for name in workload_names(ROOT / "workloads")]
    checks = plan(folders, "beta", {folder.workload.release_stack_name: SOURCE for folder in folders})
    needed = {
        size: quota(checks, f"Concurrently running builds for Linux/{size} environment")[0] for size in BUILDS_AT_ONCE
    }
    assert needed == {"Large": 2, "Medium": 1, "Small": 2}
    assert not [check for check in plan(folders, "beta") if "Concurrently" in check.question.subject]


def test_the_builds_that_a_pipeline_starts_at_once_are_the_templates() -> None:
    resources = template("SpellcheckReleaseStack")["Resources"]
    (pipeline,) = (each for each in resources.values() if each["Type"] == "AWS::CodePipeline::Pipeline")
    started: Counter[tuple[str, int, str]] = Counter()
    for stage in pipeline["Properties"]["Stages"]:
        for action in stage["Actions"]:
            if action["ActionTypeId"]["Provider"] == "CodeBuild":
                project = resources[action["Configuration"]["ProjectName"]["Ref"]]["Properties"]
                size = project["Environment"]["ComputeType"].rpartition("_")[2].capitalize()
                started[stage["Name"], action["RunOrder"], size] += 1
    most = {size: max(count for (_, _, each), count in started.items() if each == size) for size in BUILDS_AT_ONCE}
    assert most == BUILDS_AT_ONCE


@pytest.fixture
def edit_workload(tmp_path: Path) -> Callable[..., WorkloadFolder]:
    """Copies the TOML of a workload with replacements."""

    def edit(name: str, *replacements: tuple[str, str]) -> WorkloadFolder:
        folder = load_workload(name)
        text = folder.file.read_text("utf-8")
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "workload.toml").write_text(text, "utf-8")
        return load_workload(name, tmp_path)

    return edit


def test_a_type_of_unknown_size_is_refused(edit_workload: Callable[..., WorkloadFolder]) -> None:
    folder = edit_workload("duplicates", ('["inf1.6xlarge"]', '["inf1.7xlarge"]'))
    assert message_of(UsageError, plan, [folder], "beta") == (
        f"{folder.file}: inf1.7xlarge: its vCPUs are unknown. Use EC2's notation (inf1.6xlarge), or another type."
    )


def test_zones_that_are_named_are_asked_for(edit_workload: Callable[..., WorkloadFolder]) -> None:
    zones = 'shards = 3\navailability_zones = ["us-east-1b", "us-east-1c"]'
    folder = edit_workload("duplicates", ("shards = 3", zones))
    asked = [check.question for check in plan([folder], "beta")]
    assert only(Offered, asked).zones == ("us-east-1b", "us-east-1c")


def test_a_release_asks_for_the_trust_of_each_stage_that_has_its_own_environment() -> None:
    given = {"production-environment": "222233334444/eu-west-1"}
    (trust,) = trusts(given.get)
    assert trust == Trusts(stage="production", account="222233334444", region="eu-west-1")
    checks = plan([], "beta", {"SpellcheckReleaseStack": SOURCE}, None, [trust])
    assert (trust, ("SpellcheckReleaseStack",)) in [(check.question, check.stacks) for check in checks]


def test_each_question_is_asked_once_for_all_stacks_that_need_it() -> None:
    folders = [load_workload(name) for name in workload_names(ROOT / "workloads")]
    releases = tuple(folder.workload.release_stack_name for folder in folders)
    checks = plan(folders, "beta", dict.fromkeys(releases, SOURCE))
    asked = [check.question for check in checks]
    assert len(asked) == len(set(asked))
    (bootstrapped,) = (check for check in checks if check.question.subject == "cdk bootstrap")
    assert bootstrapped.stacks == (*(folder.workload.stack_name for folder in folders), *releases)
    (connection,) = (check for check in checks if isinstance(check.question, Connection))
    assert connection.stacks == releases
    assert {q.subject for q in asked if isinstance(q, MayDo)} == {
        "sts:AssumeRole on CDK's deploy role",
        "sts:AssumeRole on CDK's file-publishing role",
        "sagemaker:InvokeEndpoint on endpoints",
        "sagemaker:CreateInferenceRecommendationsJob on jobs",
    }


@pytest.mark.parametrize("name", ["duplicates", "query_intent"])
def test_the_ami_that_is_asked_for_is_the_templates(name: str) -> None:
    parameters = template(load_workload(name).workload.stack_name)["Parameters"].values()
    named = {parameter["Default"] for parameter in parameters if AMI_ROOT in parameter.get("Default", "")}
    assert named == {only(AmiParameter, questions(name)).name}


def test_the_bootstrap_that_is_asked_for_is_the_templates() -> None:
    (rule,) = template("SpellcheckStack")["Rules"].values()
    refused = rule["Assertions"][0]["Assert"]["Fn::Not"][0]["Fn::Contains"][0]
    assert max(map(int, refused)) + 1 == OLDEST_BOOTSTRAP


def test_the_zones_that_are_asked_for_are_those_of_the_shared_network() -> None:
    """Where the region is not known they are its first ones."""
    folder = load_workload("duplicates")
    network = SharedZones({folder.file: folder.workload}, "us-east-1", in_production=True)
    asked = [check.question for check in plan([folder], "production", None, network)]
    assert only(Offered, asked) == Offered(instance_type="inf1.6xlarge", zones=("use1-az1", "use1-az2"))
    assert only(Offered, questions("duplicates")) == Offered(instance_type="inf1.6xlarge", first=1)


@pytest.mark.parametrize(("name", "kind"), [("duplicates", "inf1"), ("spellcheck", "triton-24.09-gpu")])
def test_the_image_that_is_asked_for_is_of_what_containers_has(name: str, kind: str, tmp_path: Path) -> None:
    """That is the tag which the template names where the image was not built."""
    image = only(Image, questions(name))
    assert image == Image(uri=f"{own_images.REPOSITORY}:{kind}-{own_images.content_of(kind)}", kind=kind)
    assert f"/{image.uri}" in json.dumps(as_committed(tmp_path, name).synthesise().json)


def test_an_image_that_was_built_is_asked_for_by_its_digest(tmp_path: Path) -> None:
    repository = as_committed(tmp_path, "duplicates")
    registry, digest = "123456789012.dkr.ecr.us-east-1.amazonaws.com", f"sha256:{'a' * 64}"
    for content, uri in (
        (own_images.content_of("inf1"), f"{registry}/releases@{digest}"),
        ("b" * 64, f"{own_images.REPOSITORY}:inf1-{own_images.content_of('inf1')}"),
    ):
        built = own_images.OwnImage(
            kind="inf1", registry=registry, repository="releases", digest=digest, content=content
        )
        built.write_json(own_images.image_file(tmp_path, "inf1"))
        asked = [check.question for check in plan([repository.folder], "beta")]
        assert only(Image, asked) == Image(uri=uri, kind="inf1")
