"""app.py as the CDK CLI runs it, with or without an artifact, an account and a region."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Annotations, Match, Template

from stacks.app import add_all, add_stacks, asked_for, on_this_machine
from tests.stacks.miniature import Repository, candidate, make_repository
from workloads import ROOT, artifact_file

RUN_APP = (
    "import os, sys, pathlib; from stacks import app; "
    "sys.exit(app.synthesise(pathlib.Path(sys.argv[1]), app.cdk_command(os.getppid())))"
)
LIST_MODULES = (
    "import sys, pathlib; from stacks import app; "
    "app.synthesise(pathlib.Path(sys.argv[1])); print(*sys.modules, sep='\\n')"
)
CDK = ROOT / "node_modules/.bin/cdk"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Has spellcheck, which is built, and text_classification, which is not."""
    repository = make_repository(tmp_path)
    folder = repository.root / "workloads/text_classification"
    folder.mkdir()
    shutil.copy(ROOT / "workloads/text_classification/workload.toml", folder)
    return repository


def not_built(repository: Repository, workload: str, target: str) -> str:
    return (
        f"{artifact_file(repository.root, workload, target)} does not exist: build it with "
        f"`python -m model_build build {workload} --target {target}`."
    )


def test_a_synthesis_imports_neither_torch_nor_boto3_and_names_missing_builds(
    repository: Repository, tmp_path: Path
) -> None:
    """CDK's own checks of the templates, a third of a synthesis, are left to `make test` (templates.py)."""
    command = [sys.executable, "-c", LIST_MODULES, str(repository.root)]
    environment = {**without_aws(), "CDK_OUTDIR": str(tmp_path / "out")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    loaded = done.stdout.split()
    assert "aws_cdk" in loaded
    assert not {"torch", "boto3", "botocore", "sagemaker", "inference_recommender", "model_build"} & set(loaded)
    assert (
        done.stderr.splitlines()[-1]
        == f"TextClassificationStack is left out: {not_built(repository, 'text_classification', 'trt-db-ig')}"
    )
    assert (tmp_path / "out/SpellcheckStack.template.json").exists()
    assert not (tmp_path / "out/validation-report.json").exists()


ACCOUNT = Environment(account="123456789012", region="eu-west-1")
NO_ACCOUNT = (
    "No AWS account is reachable. Start a local one with `python -m local_aws` and run `source .local_aws/exports`, or "
    "log in to AWS."
)
NOTHING_BUILT = (
    "Not built: SpellcheckStack, TextClassificationStack. Build a workload with `python -m model_build build WORKLOAD "
    "--target TARGET`."
)


@pytest.mark.parametrize(
    ("environment", "command"),
    [
        (ACCOUNT, None),
        (ACCOUNT, ["bootstrap"]),
        (ACCOUNT, ["deploy", "SpellcheckStack"]),
        (Environment(), ["bootstrap"]),
    ],
)
def test_without_any_build_one_line_names_what_to_build_after_a_missing_account(
    repository: Repository, capsys: pytest.CaptureFixture[str], environment: Environment, command: list[str] | None
) -> None:
    repository.artifact_file("cpu").unlink()
    assert add_all(App(), repository.root, environment, command) == 2
    asked = command is not None and "deploy" in command
    line = not_built(repository, "spellcheck", "cpu") if asked else NOTHING_BUILT
    account = [NO_ACCOUNT] if environment.account is None else []
    assert capsys.readouterr().err.splitlines() == [*account, "There is nothing to deploy:", line]


def test_a_target_that_is_not_built_names_one_that_is(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.change_hosting(target="tensorrt")
    repository.artifact_file("tensorrt").unlink()
    assert add_all(App(), repository.root, ACCOUNT, ["deploy", "SpellcheckStack"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "There is nothing to deploy:",
        f"{not_built(repository, 'spellcheck', 'tensorrt')} Built is cpu: -c hosting-target=cpu deploys it instead.",
    ]


@pytest.mark.parametrize(
    ("command", "lines"),
    [(["deploy", "SpellcheckStack", "-c", "stage=beta"], 0), (["deploy", "TextClassificationStack"], 1)],
)
def test_a_missing_stack_is_named_if_the_command_includes_it(
    repository: Repository, capsys: pytest.CaptureFixture[str], command: list[str], lines: int
) -> None:
    assert add_all(App(), repository.root, Environment(), command) == 0
    expected = f"TextClassificationStack is left out: {not_built(repository, 'text_classification', 'trt-db-ig')}"
    assert capsys.readouterr().err.splitlines() == [expected] * lines


@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (None, ["AStack", "BStack", "CStack"]),
        (["deploy", "--all", "--require-approval", "never"], ["AStack", "BStack", "CStack"]),
        (["synth", "--quiet"], ["AStack", "BStack", "CStack"]),
        (["--app", "python3 app.py", "diff", "BStack", "-c", "stage=production"], ["BStack"]),
        (["deploy", "AStack", "CStack"], ["AStack", "CStack"]),
        (["deploy", "[AB]*"], ["AStack", "BStack"]),
        (["list"], []),
        (["bootstrap", "aws://123456789012/us-east-1"], []),
        (["destroy", "--all", "--force"], ["AStack", "BStack", "CStack"]),
    ],
)
def test_the_stacks_are_read_from_the_clis_command_line(command: list[str] | None, asked: list[str]) -> None:
    assert asked_for(["AStack", "BStack", "CStack"], command) == asked


def add_typo_fixer(repository: Repository) -> None:
    """Adds a second workload that is built."""
    folder = shutil.copytree(repository.workload_file.parent, repository.root / "workloads/typo_fixer")
    file = folder / "workload.toml"
    file.write_text(file.read_text("utf-8").replace('name = "spellcheck"', 'name = "typo_fixer"'), "utf-8")
    shutil.copytree(repository.root / "build/spellcheck", repository.root / "build/typo_fixer")


def test_a_new_folder_is_a_new_stack(repository: Repository) -> None:
    """No code knows a workload's name."""
    add_typo_fixer(repository)
    app = App()
    assert list(add_stacks(app, repository.root)) == ["TextClassificationStack"]
    assert [child.node.id for child in app.node.children] == ["SpellcheckStack", "TypoFixerStack"]


def test_a_recommendation_of_another_artifact_leaves_out_only_its_stack(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    add_typo_fixer(repository)
    repository.recommend(candidate(), archive_sha256="f" * 64)
    app = App()
    assert add_all(app, repository.root, ACCOUNT, ["deploy", "SpellcheckStack"]) == 0
    assert [child.node.id for child in app.node.children] == ["TypoFixerStack"]
    problem = f"SpellcheckStack is left out: {repository.recommendation_file}: archive_sha256: was measured on the art"
    assert capsys.readouterr().err.startswith(problem)


def test_the_cli_is_pinned_to_one_version_without_a_registry_of_this_machine() -> None:
    package = json.loads((ROOT / "package.json").read_text("utf-8"))
    assert package["devDependencies"] == {"aws-cdk": "2.1148.1"}
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text("utf-8")


@pytest.mark.integration
@pytest.mark.skipif(not CDK.exists(), reason="node_modules is missing: `npm ci`")
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH")
def test_the_real_cli_synthesises_one_stack_offline(repository: Repository, tmp_path: Path) -> None:
    repository.recommend(candidate())
    app = f"{sys.executable} -c '{RUN_APP}' {repository.root}"
    command = [str(CDK), "synth", "SpellcheckStack", "--app", app, "--output", str(tmp_path / "out"), "--quiet"]
    done = subprocess.run(command, cwd=ROOT, env=without_aws(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    template = json.loads((tmp_path / "out/SpellcheckStack.template.json").read_text("utf-8"))
    for resource in template["Resources"].values():
        # The CLI asks for the constructs' paths.
        del resource["Metadata"]["aws:cdk:path"]
        if not resource["Metadata"]:
            del resource["Metadata"]
    # Without credentials the CLI falls back on this region.
    assert template == repository.synthesise(Environment(region="us-east-1")).json
    assert "`bash scripts/release/build_image.sh triton-25.09-cpu`" in done.stdout + done.stderr
    assert "left out" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("variables", "local"),
    [
        ({}, False),
        ({"AWS_ENDPOINT_URL": "http://localhost:45013"}, True),
        ({"AWS_ENDPOINT_URL_CLOUDFORMATION": "http://127.0.0.1:1"}, True),
        ({"AWS_ENDPOINT_URL": "https://cloudformation.eu-west-1.amazonaws.com"}, False),
        (
            {
                "AWS_ENDPOINT_URL": "http://localhost:1",
                "AWS_ENDPOINT_URL_CLOUDFORMATION": "https://cloudformation.eu-west-1.amazonaws.com",
            },
            False,
        ),
    ],
)
def test_a_loopback_address_is_a_local_account(variables: dict[str, str], local: bool) -> None:
    assert on_this_machine(variables) is local


def local_stack(repository: Repository, **context: str) -> Stack:
    app = App(context={key.replace("_", "-"): value for key, value in context.items()})
    assert add_all(app, repository.root, Environment(), ["deploy", "SpellcheckStack"], local=True) == 0
    stack = app.node.find_child("SpellcheckStack")
    assert isinstance(stack, Stack)
    return stack


def told(stack: Stack) -> list[str]:
    """Returns the notes about the target."""
    found = Annotations.from_stack(stack).find_info("*", Match.string_like_regexp(".*hosting:local"))
    return [str(message.entry.data) for message in found]


def hosted(stack: Stack) -> str:
    return str(Template.from_stack(stack).to_json()["Outputs"]["HostedTarget"]["Value"])


LACKS = "the local account gets 'cpu' in place of hosting.target 'tensorrt', whose hardware it lacks"
OWN_SHADOW = {"target": "cpu-int8", "instance_type": "ml.c5.xlarge"}
CHOOSES = "-c hosting-target=NAME chooses another. [ack: hosting:local]"


@pytest.mark.parametrize(
    ("target", "hosting", "context", "expected", "note"),
    [
        ("tensorrt", {"fallback_instance_types": ["ml.g4dn.xlarge"]}, {}, "cpu", f"{LACKS}. {CHOOSES}"),
        (
            "tensorrt",
            {"shadow": {"target": "tensorrt", "instance_type": "ml.g4dn.xlarge"}},
            {},
            "cpu",
            f"{LACKS}, and no shadow. {CHOOSES}",
        ),
        ("tensorrt", {"shadow": OWN_SHADOW}, {}, "cpu", f"{LACKS}. {CHOOSES}"),
        ("tensorrt", {}, {"hosting_target": "tensorrt"}, "tensorrt", ""),
        ("cpu-int8", {}, {}, "cpu-int8", ""),
    ],
)
def test_the_local_account_gets_a_target_for_its_hardware(
    repository: Repository, target: str, hosting: dict[str, Any], context: dict[str, str], expected: str, note: str
) -> None:
    repository.build("cpu-int8")
    repository.host(target, **hosting)
    stack = local_stack(repository, **context)
    assert hosted(stack) == expected
    assert told(stack) == ([f"{repository.workload_file}: {note}"] if note else [])
    shadow = hosting.get("shadow", {})
    own = shadow.get("target") == "cpu-int8"
    shadows = Match.array_with([Match.object_like({"InstanceType": "ml.c5.xlarge"})]) if own else Match.absent()
    Template.from_stack(stack).has_resource_properties(
        "AWS::SageMaker::EndpointConfig", {"ShadowProductionVariants": shadows}
    )


def test_the_local_account_ignores_a_recommendation_for_an_accelerator(repository: Repository) -> None:
    repository.host("tensorrt")
    repository.recommend(candidate(instance_type="ml.g5.xlarge"))
    found = Annotations.from_stack(local_stack(repository)).find_warning("*", Match.any_value())
    assert [str(message.entry.data) for message in found] == [
        f"{repository.recommendation_file} is of tensorrt, and cpu is deployed in its place: one ml.c5.xlarge is "
        "deployed, without autoscaling. [ack: recommendation:rehearsal]"
    ]


def test_aws_gets_the_accelerator_target(repository: Repository) -> None:
    repository.host("tensorrt")
    app = App()
    add_stacks(app, repository.root, Environment(account="123456789012", region="us-east-1"))
    stack = app.node.find_child("SpellcheckStack")
    assert isinstance(stack, Stack)
    assert (hosted(stack), told(stack)) == ("tensorrt", [])


def without_aws() -> dict[str, str]:
    """Returns an environment in which no credentials can be found, so that nothing can be asked of AWS."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "CDK_"))}
    return {**kept, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nowhere", "CI": "true"}
