"""The wheel, without a checkout: three commands in an empty folder end with an answering endpoint and a recommendation.

The dependencies come from this environment.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tomllib
import yaml  # type: ignore[import-untyped]

from local_aws.process.local_account import LocalAccount
from model_build.init import team_repository
from tests import checkpoints
from tests.repository_copy import RepositoryCopy
from tests.stacks.templates import lint_matches
from tests.stacks.test_scanners import findings_of_checkov
from workloads import ROOT, Recommendation, load_workload

LEFT_OUT = (".venv*", ".git", ".*_cache", ".hypothesis", "node_modules", "build", "runs", "cdk.out", "tests")
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's contents."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*LEFT_OUT))
    offline = ("--no-deps", "--no-index")
    subprocess.run([*PIP, "wheel", *offline, "--no-build-isolation", "--wheel-dir", folder, source], check=True)
    (wheel,) = folder.glob("*.whl")
    subprocess.run([*PIP, "install", *offline, "--target", folder / "packages", wheel], check=True)
    return folder / "packages"


@pytest.fixture(scope="module")
def team(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryCopy]:
    """An empty folder and an account."""
    root = tmp_path_factory.mktemp("team")
    toolchain = ROOT / ".venv-triton"
    with LocalAccount.start(state=root / ".local_aws", toolchain=toolchain, pace="quick", code=packages) as account:
        yield RepositoryCopy(root, account, str(packages))


def test_the_wheel_has_every_file_that_the_packages_read(packages: Path) -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    folders = {"aws_api", "containers", "inference_recommender", "local_aws", "model_build", "requirements", "stacks"}
    files = [each for each in listed.splitlines() if each.partition("/")[0] in folders]
    files += [f"workloads/{each.name}" for each in (ROOT / "workloads").iterdir() if each.is_file()]
    assert [each for each in files if not (packages / each).is_file()] == []


def test_a_new_repository_has_our_cdk_and_valid_files(tmp_path: Path) -> None:
    """A second call changes nothing."""
    assert len(team_repository.create(tmp_path)) == 7
    assert team_repository.create(tmp_path) == []
    package, ours = (json.loads((root / "package.json").read_text("utf-8")) for root in (tmp_path, ROOT))
    assert package["devDependencies"] == ours["devDependencies"]
    assert (tmp_path / "cdk.json").read_text("utf-8") == (ROOT / "cdk.json").read_text("utf-8")
    tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))
    steps = yaml.safe_load((tmp_path / ".github/workflows/ci.yml").read_text("utf-8"))["jobs"]["check"]["steps"]
    assert {"run": "npx cdk diff", "if": "${{ vars.AWS_ROLE_ARN }}"} in steps


@pytest.fixture(scope="module")
def measure(team: RepositoryCopy, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Deploys a workload made of a checkpoint. Returns the arguments of the third command, which measures it."""
    brought = tmp_path_factory.mktemp("brought")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(brought / "inductor"))  # torch would set it
        checkpoints.KINDS["roberta_classifier"](brought / "checkpoint")
    examples = brought / "examples.txt"
    examples.write_text("".join(f"{text}\n" for text in checkpoints.texts(60)), "utf-8")
    source = ("--from", str(brought / "checkpoint"), "--examples", str(examples), "--target", "cpu")
    written = json.loads(team.run("model-build", "init", "reviews", *source, "--json"))
    assert "pyproject.toml" in written["repository"]
    commands: list[list[str]] = [each.split() for each in written["next"]]
    build, deploy, measure = commands
    team.run(*build)
    team.run("cdk", "bootstrap", "--ci")
    team.run(*deploy, "--require-approval", "never", "--ci")
    return measure[3:]


@pytest.mark.slow
@pytest.mark.integration
def test_three_commands_in_an_empty_folder_lead_to_an_endpoint_and_a_recommendation(
    team: RepositoryCopy, measure: list[str]
) -> None:
    team.run("inference-recommender", *measure)
    folder = load_workload("reviews", team.root / "workloads")
    assert Recommendation.from_json(folder.recommendation_file).recommended is not None
    text = next(iter(folder.payloads()[0].values()))
    assert team.run("inference-recommender", "invoke", "reviews", text).startswith(f"{text} -> ")


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.usefixtures("measure")
def test_scanners_accept_the_template_of_an_installed_construct(team: RepositoryCopy, tmp_path: Path) -> None:
    template = json.loads((team.root / "cdk.out" / "ReviewsStack.template.json").read_text("utf-8"))
    assert lint_matches(template) == []
    assert findings_of_checkov({"ReviewsStack.template.json": template}, tmp_path) == []


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.usefixtures("measure")
def test_the_notebook_builds_measures_sizes_and_proves(team: RepositoryCopy) -> None:
    notebook = json.loads((ROOT / "docs" / "api.ipynb").read_text("utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    shown = team.run(sys.executable, "-c", "\n".join([*cells, "print(done.proof.verdict)"]))
    assert shown.splitlines()[-1] in {"kept", "missed", "unclear"}
