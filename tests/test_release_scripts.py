"""Runs the scripts of a release with a real git and stand-ins for what needs AWS, which note what they were asked."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from workloads import ROOT

NOTES = 'echo "$(basename "$0") $*" >> "$NOTES"\n'
SHA256 = "ab" * 32


@dataclass(frozen=True)
class Checkout:
    folder: Path
    remote: Path

    def run(self, script: str, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", f"scripts/release/{script}", *arguments]
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **self._notes, **variables}
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    @property
    def _notes(self) -> dict[str, str]:
        return {"NOTES": str(self.folder / "notes")}

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
    for name in ("workloads/spellcheck/workload.toml", "model_build/build.py", "containers/__init__.py"):
        made.write(name, "one\n")
    made.write("requirements/build.txt", "a==1\n")
    made.commit()
    return made


def recommendation(sha256: str = SHA256) -> str:
    return json.dumps({"archive_sha256": sha256, "workload": "spellcheck"})


def test_a_model_is_built_once_for_what_it_is_made_from(checkout: Checkout) -> None:
    made = 'case "$*" in *" build "*) mkdir -p build/spellcheck/cpu; touch build/spellcheck/cpu/artifact.json;; esac\n'
    checkout.stand_in("python", made)
    build = "python -m model_build build spellcheck --target cpu --on sagemaker"
    lint = "python -m model_build lint build/spellcheck/cpu/model.tar.gz --workload spellcheck --target cpu"
    arguments = ("build_model.sh", "spellcheck", "cpu", "--on", "sagemaker")
    assert checkout.run(*arguments).returncode == 0
    assert checkout.asked == [build, lint]
    checkout.write("workloads/spellcheck/recommendation.json", recommendation())
    checkout.commit()
    again = checkout.run(*arguments)
    assert again.stdout == "spellcheck for cpu: nothing has changed, the build of an earlier release is used.\n"
    assert checkout.asked == [build, lint, lint]
    checkout.write("model_build/build.py", "two\n")
    checkout.commit()
    assert checkout.run(*arguments).returncode == 0
    assert checkout.asked == [build, lint, lint, build, lint]


def test_a_build_that_fails_is_not_remembered(checkout: Checkout) -> None:
    checkout.stand_in("python", "exit 1\n")
    assert checkout.run("build_model.sh", "spellcheck", "cpu").returncode == 1
    assert not (checkout.folder / "build/spellcheck/cpu/release.key").exists()


def test_what_a_model_is_made_from_is_known_without_gits_history(checkout: Checkout) -> None:
    """A build gets the files of a commit alone: a clone would let it push."""
    made = 'case "$*" in *" build "*) mkdir -p build/spellcheck/cpu; touch build/spellcheck/cpu/artifact.json;; esac\n'
    checkout.stand_in("python", made)
    shutil.rmtree(checkout.folder / ".git")
    for _ in range(2):
        done = checkout.run("build_model.sh", "spellcheck", "cpu")
    assert done.stdout == "spellcheck for cpu: nothing has changed, the build of an earlier release is used.\n"
    checkout.write("requirements/build.txt", "a==2\n")
    assert checkout.run("build_model.sh", "spellcheck", "cpu").stdout == ""


def test_without_a_baseline_the_performance_gate_lets_pass(checkout: Checkout) -> None:
    checkout.stand_in("aws")
    checkout.stand_in("python")
    done = checkout.run("performance_gate.sh", "spellcheck", "s3://releases/baselines")
    assert (done.returncode, done.stdout) == (
        0,
        "Production has served no spellcheck yet: there is nothing to compare with.\n",
    )


def test_with_a_baseline_the_gate_is_what_compare_says(checkout: Checkout) -> None:
    checkout.stand_in("aws", "mkdir -p runs/baseline\n")
    checkout.stand_in("python", "exit 1\n")
    assert checkout.run("performance_gate.sh", "spellcheck", "s3://releases/baselines").returncode == 1
    assert checkout.asked[-1] == "python -m inference_recommender compare runs/baseline runs/candidate"


def test_a_measured_artifact_is_proposed_on_a_branch_and_as_a_patch(checkout: Checkout) -> None:
    checkout.write("runs/candidate/recommendation.json", recommendation())
    checkout.write("runs/candidate/report.html", "<html></html>")
    done = checkout.run("propose.sh", "spellcheck")
    branch = f"recommendations/spellcheck-{SHA256[:12]}"
    assert (done.returncode, done.stdout) == (
        0,
        f"Open a pull request from {branch}: production is deployed once it is merged.\n",
    )
    pushed = subprocess.run(
        ["git", "show", f"{branch}:workloads/spellcheck/recommendation.json"],
        cwd=checkout.remote,
        capture_output=True,
        text=True,
        check=True,
    )
    assert pushed.stdout == recommendation()
    assert sorted(file.suffix for file in (checkout.folder / "proposal").iterdir()) == [".html", ".patch"]


def test_nothing_is_proposed_for_an_artifact_that_is_measured_already(checkout: Checkout) -> None:
    checkout.write("workloads/spellcheck/recommendation.json", recommendation())
    checkout.commit()
    checkout.write("runs/candidate/recommendation.json", recommendation())
    done = checkout.run("propose.sh", "spellcheck")
    assert (done.returncode, done.stdout) == (
        0,
        "workloads/spellcheck/recommendation.json in the repository is of this artifact already: "
        "nothing is proposed.\n",
    )
    assert list((checkout.folder / "proposal").iterdir()) == []


def test_a_branch_that_cannot_be_pushed_leaves_its_patch_and_says_what_to_do(checkout: Checkout) -> None:
    checkout.write("runs/candidate/recommendation.json", recommendation())
    checkout.write("runs/candidate/report.html", "<html></html>")
    shutil.rmtree(checkout.remote)
    done = checkout.run("propose.sh", "spellcheck")
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == (
        "The branch could not be pushed. Apply proposal/*.patch of this step's output and open a pull request by hand."
    )
    assert list((checkout.folder / "proposal").glob("*.patch"))


def test_the_smoke_test_asks_the_first_payloads_and_says_where_to_look(checkout: Checkout) -> None:
    shutil.copyfile(
        ROOT / "workloads/spellcheck/payloads.jsonl", checkout.folder / "workloads/spellcheck/payloads.jsonl"
    )
    python = shutil.which("python")
    # The stand-in is for the recommender; the script's own one-liner is run.
    checkout.stand_in("python", f'[ "$1" = -m ] || exec {python} "$@"\nexit 3\n')
    done = checkout.run("smoke_test.sh", "spellcheck", "Beta-SpellcheckStack")
    assert done.returncode == 1
    first = json.loads((ROOT / "workloads/spellcheck/payloads.jsonl").read_text().splitlines()[0])["text"]
    assert checkout.asked[-1].startswith(
        f"python -m inference_recommender invoke spellcheck --endpoint Beta-SpellcheckStack {first}"
    )
    assert done.stderr == (
        "The deployed endpoint Beta-SpellcheckStack does not answer. "
        "Its log is in CloudWatch, /aws/sagemaker/Endpoints/Beta-SpellcheckStack.\n"
    )
