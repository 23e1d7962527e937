"""Scanners that were not written here read every template of every stage: checkov, cfn-lint and cdk-nag.

checkov has an environment of its own (`make scanners`), because it pins boto3 and others to old versions. It is told
to fetch nothing: its rules are in its wheel. tests/stacks/test_templates.py has what `make test` checks of each
template; here are the stages, too, as the release pipeline deploys them.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App

from stacks.app import add_releases
from stacks.context import PRODUCTION, Options, ReleaseSource
from tests.stacks.miniature import Synthesis, as_committed, cdk_context, recommend_for_production
from tests.stacks.release.conftest import CONNECTION, VIRGINIA, WORKLOADS
from tests.stacks.templates import SNAPSHOTS, lint_matches, make_app, nag_findings
from workloads import ROOT, workload_names

pytestmark = pytest.mark.slow

CHECKOV = ROOT / ".venv-scanners" / "bin" / "checkov"
STAGES = {"beta": Options(), "production": PRODUCTION}
CDKS_OWN = ("dependency already enforced", "Prefer using Fn::Sub over Fn::Join", "Obsolete DependsOn")
"""CDK writes these into templates itself: a DependsOn more than needed, a Join in place of a Sub."""


@pytest.fixture(scope="module", params=STAGES)
def stage(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Synthesis]:
    """Each workload's stack in a stage, by its name."""

    def synthesise(name: str) -> Synthesis:
        repository = as_committed(tmp_path_factory.mktemp(name), name)
        recommend_for_production(repository)
        return repository.synthesise(options=STAGES[request.param])

    return {name: synthesise(name) for name in workload_names(ROOT / "workloads")}


@pytest.fixture(scope="module")
def releasing(tmp_path_factory: pytest.TempPathFactory) -> App:
    """The pipeline and both of its stages, with every workload measured, under the context of cdk.json."""
    root = tmp_path_factory.mktemp("release")
    for name in WORKLOADS:
        recommend_for_production(as_committed(root, name))
    app = make_app(root / "cdk.out", cdk_context())
    add_releases(app, root, VIRGINIA, ReleaseSource(repository="example/models", connection_arn=CONNECTION))
    return app


def of_the_release(app: App) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the pipeline's template and those that its stages deploy, by their paths."""
    folder = Path(app.synth().directory)
    files = sorted(folder.rglob("*.template.json"))
    assert {"Beta", "Production"} <= {file.parent.name.rpartition("-")[2] for file in files}
    for file in files:
        yield file.relative_to(folder).as_posix(), json.loads(file.read_text("utf-8"))


def findings_of_checkov(templates: dict[str, dict[str, Any]], folder: Path) -> list[str]:
    if not CHECKOV.exists():
        pytest.skip(f"There is no {CHECKOV.relative_to(ROOT)}: `make scanners` installs it, where PyPI can be reached.")
    for name, template in templates.items():
        file = folder / name.replace("/", "-").replace(".template.json", "")
        file.with_suffix(".json").write_text(json.dumps(template), "utf-8")
    command = [
        str(CHECKOV),
        "--directory",
        str(folder),
        "--framework",
        "cloudformation",
        "--skip-download",
        "--compact",
    ]
    scanned = subprocess.run([*command, "--quiet", "--output", "json"], capture_output=True, text=True, check=False)
    assert scanned.returncode in (0, 1), scanned.stderr
    report = json.loads(scanned.stdout)
    assert report["summary"]["parsing_errors"] == 0
    assert report["summary"]["resource_count"] > 20 * len(templates), "it read the templates"
    failed = report["results"]["failed_checks"]
    return [f"{each['check_id']} {each['file_path']} {each['resource']}: {each['check_name']}" for each in failed]


def test_checkov_has_no_unanswered_finding_in_a_stage(stage: dict[str, Synthesis], tmp_path: Path) -> None:
    assert findings_of_checkov({name: synthesis.json for name, synthesis in stage.items()}, tmp_path) == []


def test_checkov_has_no_unanswered_finding_in_a_release_and_its_stages(releasing: App, tmp_path: Path) -> None:
    assert findings_of_checkov(dict(of_the_release(releasing)), tmp_path) == []


def test_checkov_has_no_unanswered_finding_with_every_option_of_an_endpoint(
    everything: Synthesis, tmp_path: Path
) -> None:
    assert findings_of_checkov({"everything": everything.json}, tmp_path) == []


def test_checkov_sees_what_is_not_answered(tmp_path: Path) -> None:
    """Takes the answers out of a template: each is then a finding, so that none is left over either."""
    template = json.loads((SNAPSHOTS / "DuplicatesStack.template.json").read_text("utf-8"))
    answered = {
        f"{answer['id']} {resource['Type']}.{name}"
        for name, resource in template["Resources"].items()
        for answer in resource.get("Metadata", {}).pop("checkov", {"skip": []})["skip"]
    }
    found = {
        " ".join((line.split(" ")[0], line.split(" ")[2].rstrip(":")))
        for line in findings_of_checkov({"x": template}, tmp_path)
    }
    assert found == answered


def test_cfn_lint_has_neither_errors_nor_warnings_in_a_stage(stage: dict[str, Synthesis]) -> None:
    found = [str(m) for each in stage.values() for m in lint_matches(each.json, "us-east-1") if not written_by_cdk(m)]
    assert found == []


def test_cfn_lint_has_neither_errors_nor_warnings_in_a_release_and_its_stages(releasing: App) -> None:
    for name, template in of_the_release(releasing):
        found = [str(match) for match in lint_matches(template, "us-east-1") if not written_by_cdk(match)]
        assert found == [], name


def written_by_cdk(match: Any) -> bool:
    return any(words in match.message for words in CDKS_OWN)


def test_cdk_nag_has_no_unanswered_finding_in_a_stage(stage: dict[str, Synthesis]) -> None:
    assert {name: nag_findings(each.app) for name, each in stage.items()} == {name: [] for name in stage}


def test_cdk_nag_has_no_unanswered_finding_in_a_release_and_its_stages(releasing: App) -> None:
    assert nag_findings(releasing) == []
