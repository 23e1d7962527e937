"""The constructs that any CDK app can use: their names, the examples of docs/constructs.md, and refusals."""

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomllib
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2

import stacks
from stacks import (
    AsynchronousEndpoint,
    EcrImage,
    EndpointAlarms,
    InferentiaService,
    ModelArchive,
    RecommendedEndpoint,
    RecommendedScaling,
    ReleasePipeline,
    ScheduledBatch,
    ServerlessEndpoint,
    SharedEndpoint,
)
from stacks.endpoint.hosting_kinds import fewest_servers
from tests.builders import OBJECTIVE, SHA256, a_candidate, a_recommendation, message_of
from tests.stacks.miniature import OTHER_SHA256, Synthesis, cdk_context, service_candidate, synthesis_of
from tests.stacks.release.conftest import CONNECTION
from tests.stacks.templates import assert_is_snapshot, lint_matches, make_app
from tests.stacks.test_templates import CDKS_OWN, masked
from workloads import (
    ROOT,
    Candidate,
    EndpointScalingRules,
    ProjectError,
    ScheduledMinimum,
    ThroughputObjective,
    file_sha256,
    load_workload,
)
from workloads.hosting import Canary

PUBLIC = (
    *(RecommendedEndpoint, RecommendedScaling, EndpointAlarms, InferentiaService, ScheduledBatch, ReleasePipeline),
    *(AsynchronousEndpoint, ServerlessEndpoint, SharedEndpoint),
)
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/triton:25.09-cpu"


def test_the_public_names_are_these() -> None:
    assert set(stacks.__all__) == {"EcrImage", "ModelArchive", *(construct.__name__ for construct in PUBLIC)}
    assert all(inspect.getdoc(getattr(stacks, name)) for name in stacks.__all__)
    assert not hasattr(stacks, "Recommended")


def a_model(root: Path, workload: str, target: str, chosen: Candidate) -> None:
    """Leaves an archive and its recommendation where a build and a run leave them."""
    archive = root / "build" / workload / target / "model.tar.gz"
    archive.parent.mkdir(parents=True)
    archive.write_bytes(f"{workload} {target}".encode())
    file = root / "workloads" / workload / "recommendation.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    a_recommendation(chosen, workload=workload, archive_sha256=file_sha256(archive)).write_json(file)
    (file.parent / "workload.toml").write_bytes((ROOT / "workloads" / workload / "workload.toml").read_bytes())


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> App:
    """The app of docs/constructs.md, whose code runs in a team's repository."""
    root = tmp_path_factory.mktemp("team")
    a_model(root, "spellcheck", "cpu", a_candidate())
    a_model(root, "query_intent", "inf2", service_candidate(instance_type="inf2.xlarge"))
    a_model(root, "duplicates", "inf2", a_candidate())
    page = (ROOT / "docs" / "constructs.md").read_text("utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S))
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setattr("aws_cdk.App", lambda: make_app(root / "cdk.out", cdk_context()))
        exec(compile(code, "docs/constructs.md", "exec"), names)
    app = names["app"]
    assert isinstance(app, App)
    return app


@pytest.fixture(params=[construct.__name__ for construct in PUBLIC])
def example(request: pytest.FixtureRequest, examples: App) -> Synthesis:
    return synthesis_of(examples, f"{request.param}Example")


@pytest.mark.parametrize(("load", "loss", "servers"), [(10.0, 0.2147, 10), (10.0, 0.001, 21), (0.5, 0.001, 5)])
def test_servers_by_erlangs_loss_formula(load: float, loss: float, servers: int) -> None:
    assert fewest_servers(load, loss) == servers


def test_an_examples_template_is_the_one_last_reviewed(example: Synthesis) -> None:
    assert_is_snapshot(example.stack.stack_name, masked(example.json))


def test_cfn_lint_has_neither_errors_nor_warnings_in_an_example(example: Synthesis) -> None:
    style = "Prefer using Fn::Sub over Fn::Join"  # CDK Pipelines writes it.
    matches = [match for match in lint_matches(example.json, "eu-west-1") if style not in match.message]
    assert [str(match) for match in matches if match.rule.id not in CDKS_OWN] == []


def an_archive(stack: Stack) -> ModelArchive:
    return ModelArchive(stack, "Archive", file=Path(__file__), sha256=SHA256)


def endpoint(stack: Stack, **changes: Any) -> RecommendedEndpoint:
    image = EcrImage.from_uri(stack, "Image", IMAGE)
    arguments = {"recommendation": a_recommendation(), "archive": an_archive(stack), "image": image, **changes}
    return RecommendedEndpoint(stack, "Endpoint", objective=OBJECTIVE, **arguments)


def existing(stack: Stack) -> Any:
    return RecommendedEndpoint.from_endpoint_name(stack, "Existing", "spelling")


def scaling(stack: Stack, **arguments: Any) -> RecommendedScaling:
    return RecommendedScaling(stack, "Scaling", endpoint=existing(stack), **arguments)


def alarms(stack: Stack, **arguments: Any) -> EndpointAlarms:
    return EndpointAlarms(stack, "Alarms", endpoint=existing(stack), objective=OBJECTIVE, **arguments)


def on_ec2(stack: Stack) -> dict[str, Any]:
    vpc = ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-0a1b2c3d",
        vpc_cidr_block="10.0.0.0/16",
        availability_zones=["eu-west-1a"],
        private_subnet_ids=["subnet-0a1b2c3d"],
    )
    return {"archive": an_archive(stack), "image": EcrImage.from_uri(stack, "Image", IMAGE), "vpc": vpc}


def service(stack: Stack, **changes: Any) -> InferentiaService:
    recommendation = a_recommendation(service_candidate(instance_type="inf2.xlarge"))
    arguments = {"recommendation": recommendation, "objective": OBJECTIVE, **on_ec2(stack), **changes}
    return InferentiaService(stack, "Service", **arguments)


def batch(stack: Stack, **changes: Any) -> ScheduledBatch:
    arguments = {"schedule": "rate(1 day)", "instance_type": "inf2.xlarge", **on_ec2(stack), **changes}
    return ScheduledBatch(stack, "Batch", objective=ThroughputObjective(rows_per_second=1.0), **arguments)


def pipeline(stack: Stack, **changes: Any) -> ReleasePipeline:
    arguments = {"repository": "example/models", "connection_arn": CONNECTION, **changes}
    workload = load_workload("spellcheck").workload
    return ReleasePipeline(stack, "Pipeline", workload=workload, add_stacks=lambda *_: None, **arguments)


def queue(stack: Stack, **changes: Any) -> AsynchronousEndpoint:
    image = EcrImage.from_uri(stack, "Image", IMAGE)
    arguments = {"recommendation": a_recommendation(), **changes}
    return AsynchronousEndpoint(stack, "Queue", archive=an_archive(stack), image=image, **arguments)


def serverless(stack: Stack, peak: int = 600, host_ami: str | None = None, **changes: Any) -> ServerlessEndpoint:
    image = EcrImage.from_uri(stack, "Image", IMAGE, host_ami=host_ami)
    objective = OBJECTIVE.model_copy(update={"peak_invocations_per_minute": peak})
    return ServerlessEndpoint(
        stack, "Serverless", archive=an_archive(stack), image=image, objective=objective, **changes
    )


def shared(stack: Stack, max_copies: int = 1, **changes: Any) -> None:
    arguments = {"instance_type": "ml.g5.12xlarge", "max_instances": 2, **changes}
    image = EcrImage.from_uri(stack, "Image", IMAGE)
    endpoint = SharedEndpoint(stack, "Shared", **arguments)
    endpoint.add_model("Model", archive=an_archive(stack), image=image, memory_mb=1024, max_copies=max_copies)


def image(stack: Stack, uri: str) -> EcrImage:
    return EcrImage.from_uri(stack, "Image", uri)


def archive(stack: Stack, file: Path) -> ModelArchive:
    return ModelArchive(stack, "Archive", file=file)


MAKE: dict[str, Callable[..., object]] = {
    each.__name__: each
    for each in (endpoint, scaling, alarms, service, batch, pipeline, queue, serverless, shared, image, archive)
}
MINIMUM = ScheduledMinimum(schedule="cron(0 7 ? * * *)", min_capacity=21)
VALUES: dict[str, object] = {
    "none": None,
    "of-ten": a_recommendation(),
    "of-another-archive": a_recommendation(archive_sha256=OTHER_SHA256),
    "without-candidate": a_recommendation().model_copy(update={"recommended": None}),
    "without-numbers": a_recommendation(a_candidate(count=None, autoscaling=None)),
    "without-capacity": a_recommendation(a_candidate(max_invocations_per_minute=None)),
    "on-Inf1": a_recommendation(a_candidate(instance_type="ml.inf1.xlarge")),
    "canary": Canary(strategy="canary"),
    "minimum-of-21": EndpointScalingRules(scheduled_minimums=(MINIMUM,)),
    "beta-elsewhere": {"beta": Environment(account="210987654321", region="eu-west-1")},
    "nowhere": Path("/nowhere/model.tar.gz"),
}
REFUSALS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("construct_refusals.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", REFUSALS)
def test_wrong_arguments_are_refused(name: str, tmp_path: Path) -> None:
    case, stack = REFUSALS[name], Stack(make_app(tmp_path), "Stack")
    arguments = {key: VALUES.get(value, value) for key, value in case["arguments"].items()}
    assert message_of(ProjectError, MAKE[case["construct"]], stack, **arguments) == case["message"].strip()
