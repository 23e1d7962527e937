"""Runs the scripts of a release with a real git and stand-ins for what needs AWS, which note what they were asked."""

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomllib

from stacks.ecs.measuring import COMMANDS
from workloads import ROOT

NOTES = 'echo "$(basename "$0") $*" >> "$NOTES"\n'
SHA256 = "ab" * 32


@dataclass(frozen=True)
class Checkout:
    folder: Path
    remote: Path

    def run(self, script: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", f"scripts/release/{script}", *arguments]
        own = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "NOTES": str(self.folder / "notes")}
        environment = {**os.environ, **own, **variables}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    @property
    def asked(self) -> list[str]:
        notes = self.folder / "notes"
        return notes.read_text().splitlines() if notes.exists() else []

    def stand_in(self, name: str, body: str = "") -> None:
        file = self.folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/usr/bin/env bash\n{NOTES}{body}")
        file.chmod(0o755)

    def write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def commit(self) -> None:
        self.git("add", "workloads", "scripts", "model_build", "containers", "requirements")
        self.git("commit", "--quiet", "--allow-empty", "--message", "as it is")

    def git(self, *arguments: str) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@localhost")
        done = subprocess.run(
            ["git", *identity, *arguments], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    remote, folder = tmp_path / "remote.git", tmp_path / "clone"
    subprocess.run(["git", "init", "--quiet", "--bare", remote], check=True)
    subprocess.run(["git", "clone", "--quiet", remote, folder], check=True, capture_output=True)
    made = Checkout(folder=folder, remote=remote)
    shutil.copytree(ROOT / "scripts" / "release", folder / "scripts" / "release")
    for name in ("workloads/spellcheck/workload.toml", "model_build/execute.py", "containers/__init__.py"):
        made.write(name, "one\n")
    made.write("requirements/build.txt", "a==1\n")
    made.commit()
    return made


TABLE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("release_scripts.toml").read_text("utf-8"))


@pytest.mark.parametrize("name", TABLE)
def test_a_script_has_the_documented_output_and_exit_code(checkout: Checkout, name: str) -> None:
    case = TABLE[name]
    for program in {"aws", "python"} & case.keys():
        checkout.stand_in(program, case[program].replace("{python}", str(shutil.which("python"))) + "\n")
    for file, text in case.get("write", {}).items():
        checkout.write(file, text)
    done = checkout.run(*case["run"])
    assert done.returncode == case.get("code", 0), done.stderr
    assert done.stdout == case.get("stdout", done.stdout)
    assert done.stderr == case.get("stderr", done.stderr)
    assert done.stderr.startswith(case.get("stderr_starts", ""))
    assert case.get("stderr_has", "") in done.stderr
    assert checkout.asked == case.get("calls", checkout.asked)
    assert checkout.asked[-1:] == ([case["last_call"]] if "last_call" in case else checkout.asked[-1:])
    assert not ("absent" in case and (checkout.folder / case["absent"]).exists())


def recommendation(sha256: str = SHA256) -> str:
    return json.dumps({"archive_sha256": sha256, "workload": "spellcheck"})


def test_a_model_is_built_once_for_what_it_is_made_from(checkout: Checkout) -> None:
    """A build gets the files of a commit without git's history: a clone would let it push."""
    made = 'case "$*" in *" build "*) mkdir -p build/spellcheck/cpu; touch build/spellcheck/cpu/artifact.json;; esac\n'
    checkout.stand_in("python", made)
    shutil.rmtree(checkout.folder / ".git")
    build = "python -m model_build build spellcheck --target cpu --on sagemaker"
    lint = "python -m model_build lint build/spellcheck/cpu/model.tar.gz --workload spellcheck --target cpu"
    arguments = ("build_model.sh", "spellcheck", "cpu", "--on", "sagemaker")
    assert checkout.run(*arguments).returncode == 0
    assert checkout.asked == [build, lint]
    checkout.write("workloads/spellcheck/recommendation.json", recommendation())
    again = checkout.run(*arguments)
    assert again.stdout == "spellcheck for cpu: nothing has changed, the build of an earlier release is used.\n"
    assert checkout.asked == [build, lint, lint]
    for count, changed in enumerate(("model_build/execute.py", "requirements/build.txt"), 1):
        checkout.write(changed, "two\n")
        assert checkout.run(*arguments).returncode == 0
        assert checkout.asked == [build, lint, lint, *[build, lint] * count]


def propose(checkout: Checkout, told: str) -> tuple[set[str], str]:
    """Proposes a measured recommendation. Returns the files that are left, and standard error."""
    checkout.write("runs/candidate/recommendation.json", recommendation())
    checkout.write("runs/candidate/report.html", "<html></html>")
    done = checkout.run("propose.sh", "spellcheck")
    assert (done.returncode, done.stdout) == (0, told)
    assert (checkout.folder / "proposal/README.txt").read_text() == told
    left = (checkout.folder / "proposal").iterdir()
    return {"a patch" if file.suffix == ".patch" else file.name for file in left}, done.stderr


def test_a_measured_artifact_is_proposed_on_a_branch_and_as_a_patch(checkout: Checkout) -> None:
    branch = f"recommendations/spellcheck-{SHA256[:12]}"
    left, _ = propose(checkout, f"Open a pull request from {branch}: production is deployed once it is merged.\n")
    checkout.git("fetch", "--quiet", "origin")
    assert checkout.git("show", f"origin/{branch}:workloads/spellcheck/recommendation.json") == recommendation()
    assert left == {"README.txt", "spellcheck-report.html", "a patch"}


def test_a_measured_artifact_is_not_proposed_again(checkout: Checkout) -> None:
    file = checkout.write("workloads/spellcheck/recommendation.json", recommendation())
    checkout.commit()
    place = file.relative_to(checkout.folder)
    left, _ = propose(checkout, f"{place} in the repository is of this artifact already: nothing is proposed.\n")
    assert left == {"README.txt", "spellcheck-report.html"}, "CodeBuild fails a step whose output has no file"


def test_a_failed_push_leaves_a_patch_and_does_not_stop_the_release(checkout: Checkout) -> None:
    shutil.rmtree(checkout.remote)
    told = (
        "The branch could not be pushed. Apply the .patch file of this step's output and open a pull request by hand: "
        "production is deployed once it is merged.\n"
    )
    left, reason = propose(checkout, told)
    assert left == {"README.txt", "spellcheck-report.html", "a patch"}
    assert "does not appear to be a git repository" in reason, "git's own reason"


def test_the_parity_gate_for_inferentia_uses_recorded_outputs(checkout: Checkout) -> None:
    checkout.stand_in("python", '[ "$2" != scripts.release.image ] || echo REGISTRY@DIGEST\n')
    checkout.write("build/duplicates/inf1/artifact.json", "{}")
    arguments = ("duplicates", "inf1", "arn", "bucket", "ml.inf1.xlarge")
    assert checkout.run("record_on_chip.sh", *arguments).returncode == 0
    assert checkout.run("parity_gate.sh", "duplicates", "inf1", "recorded/outputs.json").returncode == 0
    named = "duplicates --target inf1"
    assert checkout.asked == [
        "python -m scripts.release.image uri inf1",
        f"python -m model_build verify {named} --on sagemaker --set recommender.role_arn=arn "
        "--set recommender.bucket=bucket --image-uri REGISTRY@DIGEST --instance-type ml.inf1.xlarge "
        "--outputs recorded/outputs.json",
        f"python -m model_build verify {named} --outputs recorded/outputs.json",
        f"python -m model_build verify {named} --recorded",
    ]
    assert checkout.run("record_on_chip.sh", *arguments, "OWN").returncode == 0
    assert "--image-uri OWN " in checkout.asked[-1]


def smoke_test(
    checkout: Checkout, status: int, workload: str = "spellcheck", place: str = "Beta-SpellcheckStack"
) -> "subprocess.CompletedProcess[str]":
    """Runs the smoke test with a client that ends with an exit code. The script's own Python is a real one."""
    checkout.stand_in("python", f'[ "$1" = -m ] || exec {shutil.which("python")} "$@"\nexit {status}\n')
    return checkout.run("smoke_test.sh", workload, place)


LOOK = (
    "If AWS could be reached, why Beta-SpellcheckStack does not answer is in CloudWatch, "
    "/aws/sagemaker/Endpoints/Beta-SpellcheckStack.\n"
)
INVOKE = "python -m inference_recommender invoke spellcheck --endpoint Beta-SpellcheckStack --"


@pytest.mark.parametrize(("status", "told"), [(0, ""), (2, ""), (3, LOOK), (70, "")])
def test_the_smoke_test_sends_the_first_payloads_and_returns_the_clients_exit_code(
    checkout: Checkout, status: int, told: str
) -> None:
    payloads = ROOT / "workloads/spellcheck/payloads.jsonl"
    shutil.copyfile(payloads, checkout.folder / "workloads/spellcheck/payloads.jsonl")
    done = smoke_test(checkout, status)
    assert (done.returncode, done.stderr) == (status, told)
    texts = [json.loads(line)["text"] for line in payloads.read_text().splitlines()[:3]]
    assert checkout.asked[-1] == " ".join([INVOKE, *texts])


def test_a_service_is_asked_at_its_url(checkout: Checkout) -> None:
    checkout.write("workloads/query_intent/payloads.jsonl", '{"query": "red shoes"}\n')
    done = smoke_test(checkout, 3, "query_intent", "https://intent.example.com:8080")
    assert (done.returncode, done.stderr) == (3, "")  # an ECS service has no log of an endpoint
    asked = "python -m inference_recommender invoke query_intent --url https://intent.example.com:8080 -- red shoes"
    assert checkout.asked[-1] == asked


BUILDS = """
case "$1 $2" in
  "codebuild start-build") echo Beta-Measure:1;;
  "codebuild batch-get-builds")
    echo . >> "$NOTES.polls"
    [ "$(wc -l < "$NOTES.polls")" -gt 1 ] && echo "${ENDS:-SUCCEEDED} https://log" || echo "IN_PROGRESS None";;
  "s3 cp") case "$*" in *source.zip*) cp "$4" "$NOTES.zip";;
    *) mkdir -p runs/candidate; echo {} > runs/candidate/measurements.json;; esac;;
esac
"""


@pytest.fixture
def measured_in_vpc(checkout: Checkout) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Returns a function that measures a service. Packages are a file each; the zip file is a real one."""
    for name in ("aws_api/__init__.py", "inference_recommender/__init__.py", "cdk.json"):
        checkout.write(name, "")
    checkout.write("collected/artifact.json", "{}")
    (checkout.folder / "build/query_intent").mkdir(parents=True)
    (checkout.folder / "build/query_intent/inf1").symlink_to(checkout.folder / "collected")
    checkout.stand_in("aws", BUILDS)
    real = shutil.which("python")
    checkout.stand_in("python", f'[ "$2" = zipfile ] && exec {real} "$@"\nmkdir packages; touch packages/numpy.py\n')

    def run(**variables: str) -> "subprocess.CompletedProcess[str]":
        return checkout.run("measure_in_vpc.sh", *ARGUMENTS["measure_in_vpc.sh"], POLL_S="0", **variables)

    return run


Measured = Callable[..., "subprocess.CompletedProcess[str]"]


def test_a_build_in_a_vpc_gets_the_files_the_build_and_the_packages(
    checkout: Checkout, measured_in_vpc: Measured
) -> None:
    """A step's build folder is a link to an artifact; a zip file has no links."""
    assert measured_in_vpc().stderr == ""
    with zipfile.ZipFile(checkout.folder / "notes.zip") as archive:
        names = set(archive.namelist())
    assert {"build/query_intent/inf1/artifact.json", "packages/numpy.py", "cdk.json"} <= names
    assert "scripts/release/measure_url.sh" in names


def test_a_service_is_measured_by_a_build_in_its_vpc(checkout: Checkout, measured_in_vpc: Measured) -> None:
    done = measured_in_vpc()
    assert (done.returncode, done.stderr) == (0, "")
    packages, _, *calls = checkout.asked
    assert packages.startswith("python -m pip install ")
    assert "--target packages" in packages
    variables = {
        "WORKLOAD": "query_intent",
        "URL": "http://lb:8080",
        "INSTANCE_TYPE": "inf1.6xlarge",
        "PLACE": "s3://releases/run",
    }
    given = " ".join(f"name={name},value={value},type=PLAINTEXT" for name, value in variables.items())
    assert calls[2] == (
        "aws codebuild start-build --project-name Beta-Measure --service-role-override arn --source-type-override S3 "
        f"--source-location-override releases/run/source.zip --environment-variables-override {given} "
        "--query build.id --output text"
    )
    assert [call.split()[2] for call in calls[3:-1]] == ["batch-get-builds"] * 2
    assert calls[-1] == "aws s3 cp --recursive --only-show-errors s3://releases/run/run runs/candidate"


def test_a_failed_build_in_the_vpc_fails_the_step_with_its_log(measured_in_vpc: Measured) -> None:
    done = measured_in_vpc(ENDS="FAILED")
    assert (done.returncode, done.stderr) == (
        1,
        "The build Beta-Measure:1 in the VPC of the service ended as FAILED. Its log: https://log\n",
    )


def test_the_builds_of_a_vpc_run_scripts_of_the_release() -> None:
    """Each command gets as many arguments as its script takes."""
    for command in COMMANDS:
        if command.startswith("bash "):
            _, script, *arguments = command.split()
            assert len(arguments) == len(ARGUMENTS[Path(script).name])


def test_a_payload_of_several_lines_is_one_request(checkout: Checkout) -> None:
    checkout.write("workloads/spellcheck/payloads.jsonl", json.dumps({"text": "-one\ntwo"}) + "\n")
    assert smoke_test(checkout, 0).returncode == 0
    assert "\n".join(checkout.asked[-2:]) == f"{INVOKE} -one\ntwo"


ARGUMENTS = {
    "build_image.sh": ("inf1",),
    "build_model.sh": ("spellcheck", "cpu"),
    "keep_baseline.sh": ("spellcheck", "s3://releases/baselines"),
    "measure.sh": ("spellcheck", "model", "arn"),
    "measure_in_vpc.sh": ("query_intent", "Beta-Measure", "http://lb:8080", "inf1.6xlarge", "s3://releases/run", "arn"),
    "measure_url.sh": ("query_intent", "http://lb:8080", "inf1.6xlarge"),
    "measure_endpoint.sh": ("text_classification", "Beta-TextClassificationStack", "trt-db-ig"),
    "prove.sh": ("text_classification", "Beta-TextClassificationStack"),
    "parity_gate.sh": ("spellcheck", "cpu"),
    "performance_gate.sh": ("spellcheck", "s3://releases/baselines"),
    "propose.sh": ("spellcheck",),
    "record_on_chip.sh": ("duplicates", "inf1", "arn", "bucket", "ml.inf1.xlarge"),
    "smoke_test.sh": ("spellcheck", "Beta-SpellcheckStack"),
    "take_down.sh": ("Beta-SpellcheckStack",),
}


def test_every_script_checks_its_arguments() -> None:
    scripts = {file.name: file.read_text() for file in (ROOT / "scripts/release").glob("*.sh")}
    assert scripts.keys() == ARGUMENTS.keys()
    assert all('\nsource "$(dirname "$0")/common.bash"\ntakes ' in text for text in scripts.values())


@pytest.mark.parametrize("script", ARGUMENTS)
def test_a_missing_or_empty_argument_is_a_usage_error(checkout: Checkout, script: str) -> None:
    arguments = ARGUMENTS[script]
    missing, empty = checkout.run(script, *arguments[:-1]), checkout.run(script, *arguments[:-1], "")
    assert (missing.returncode, empty.returncode) == (2, 2)
    assert missing.stderr.startswith(f"usage: scripts/release/{script} ")
    assert empty.stderr.startswith(f"An argument is empty. usage: scripts/release/{script} ")
    assert checkout.asked == []


@pytest.mark.parametrize("status", [1, 3, 70])
def test_a_script_returns_the_exit_code_of_a_failed_program(checkout: Checkout, status: int) -> None:
    checkout.stand_in("python", f"exit {status}\n")
    checkout.write("build/query_intent/inf1/artifact.json", "{}")
    measuring = (name for name in ARGUMENTS if name.startswith("measure"))
    for script in ("build_model.sh", "parity_gate.sh", *measuring):
        done = checkout.run(script, *ARGUMENTS[script])
        assert (done.returncode, done.stderr) == (status, "")
