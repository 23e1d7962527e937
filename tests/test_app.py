"""app.py as the CDK CLI runs it: a process of its own, with or without an artifact, an account and a region."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from aws_cdk import App, Environment

from app import add_stacks, deploying_to
from tests.stacks.miniature import Repository, candidate, make_repository
from workloads import ROOT, artifact_file

RUN_APP = "import sys, pathlib, app; sys.exit(app.main(pathlib.Path(sys.argv[1])))"
LIST_MODULES = "import sys, pathlib, app; app.main(pathlib.Path(sys.argv[1])); print(*sys.modules, sep='\\n')"
CDK = ROOT / "node_modules/.bin/cdk"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_repository(tmp_path)


def test_synth_imports_neither_torch_nor_boto3(repository: Repository) -> None:
    loaded = run_python(LIST_MODULES, repository).stdout.split()
    assert "aws_cdk" in loaded
    assert not {"torch", "boto3", "botocore", "sagemaker", "inference_recommender", "model_build"} & set(loaded)


def test_a_missing_artifact_is_one_sentence_that_names_the_command_to_build_it(repository: Repository) -> None:
    file = artifact_file(repository.root, "spellcheck", "cpu")
    file.unlink()
    done = run_python(RUN_APP, repository)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-2] == "There is nothing to deploy:"
    assert done.stderr.splitlines()[-1] == (
        f"{file} does not exist: build it with `python -m model_build build spellcheck --target cpu`."
    )
    assert "Traceback" not in done.stderr


def test_a_workload_that_is_not_built_is_left_out_with_its_reason(repository: Repository) -> None:
    add_workload(repository, "text_classification")
    done = run_python(RUN_APP, repository)
    assert done.returncode == 0
    artifact = artifact_file(repository.root, "text_classification", "trt-db-ig")
    assert [line for line in done.stderr.splitlines() if line.startswith("No stack")] == [
        f"No stack for it: {artifact} does not exist: build it with "
        "`python -m model_build build text_classification --target trt-db-ig`.",
    ]


def test_a_new_folder_is_a_new_stack(repository: Repository) -> None:
    """No code knows a workload's name."""
    folder = shutil.copytree(repository.workload_file.parent, repository.root / "workloads/typo_fixer")
    file = folder / "workload.toml"
    file.write_text(file.read_text("utf-8").replace('name = "spellcheck"', 'name = "typo_fixer"'), "utf-8")
    shutil.copytree(repository.root / "build/spellcheck", repository.root / "build/typo_fixer")
    app = App()
    assert add_stacks(app, repository.root) == []
    assert [child.node.id for child in app.node.children] == ["SpellcheckStack", "TypoFixerStack"]


def test_only_a_release_pays_for_cdks_own_checks_of_the_templates(repository: Repository, tmp_path: Path) -> None:
    """They are a third of a synthesis. In `make test`, nag.py reads what they find in every stack."""
    connection = "arn:aws:codeconnections:us-east-1:123456789012:connection/01234567-89ab-cdef-0123-456789abcdef"
    release = {"release-repository": "example/models", "release-connection": connection}
    for name, context, checked in (("daily", {}, False), ("release", release, True)):
        output = tmp_path / name
        done = run_python(RUN_APP, repository, CDK_OUTDIR=str(output), CDK_CONTEXT_JSON=json.dumps(context))
        assert done.returncode == 0, done.stderr
        assert (output / "validation-report.json").exists() == checked


def test_account_and_region_are_what_the_cli_found_and_may_both_be_missing() -> None:
    found = deploying_to({"CDK_DEFAULT_ACCOUNT": "123456789012", "CDK_DEFAULT_REGION": "eu-west-1"})
    assert (found.account, found.region) == ("123456789012", "eu-west-1")
    assert (deploying_to({}).account, deploying_to({}).region) == (None, None)


def test_the_cli_is_pinned_to_one_version_without_a_registry_of_this_machine() -> None:
    package = json.loads((ROOT / "package.json").read_text("utf-8"))
    assert package["devDependencies"] == {"aws-cdk": "2.1148.1"}
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text("utf-8")


@pytest.mark.integration
@pytest.mark.skipif(not CDK.exists(), reason="node_modules is missing: `npm ci`")
@pytest.mark.skipif(shutil.which("node") is None, reason="node is not on PATH")
def test_the_real_cli_synthesises_offline(repository: Repository, tmp_path: Path) -> None:
    repository.recommend(candidate())
    app = f"{sys.executable} -c '{RUN_APP}' {repository.root}"
    command = [str(CDK), "synth", "SpellcheckStack", "--app", app, "--output", str(tmp_path / "out"), "--quiet"]
    done = subprocess.run(command, cwd=ROOT, env=without_aws(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    template = json.loads((tmp_path / "out/SpellcheckStack.template.json").read_text("utf-8"))
    for resource in template["Resources"].values():
        # The CLI asks for the constructs' paths.
        resource.pop("Metadata", None)
    # Without credentials it also falls back on this region.
    assert template == repository.synthesise(Environment(region="us-east-1")).json
    assert "Acknowledge with 'Annotation::image:stock'" in done.stdout + done.stderr


def add_workload(repository: Repository, name: str) -> None:
    folder = repository.root / "workloads" / name
    folder.mkdir()
    shutil.copy(ROOT / "workloads" / name / "workload.toml", folder)


def run_python(code: str, repository: Repository, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, str(repository.root)]
    environment = {**without_aws(), **variables}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def without_aws() -> dict[str, str]:
    """No credentials to be found, so that nothing can be asked of AWS."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AWS_", "CDK_"))}
    return {**kept, "AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "/nowhere", "CI": "true"}
