"""The release pipeline: its order, what waits for a recommendation, what its roles may do, what is refused."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import tomllib
from aws_cdk import App, Stack
from aws_cdk.assertions import Annotations, Match

from stacks.app import NothingBuilt, add_all, add_stacks
from stacks.context import ReleaseSource, read_options, read_release
from stacks.ecs.measuring import COMMANDS
from stacks.release import steps
from stacks.release.pipeline import _model
from tests.builders import message_of
from tests.stacks.miniature import as_committed, candidate
from tests.stacks.release.conftest import CONNECTION, ENDPOINTS, ON_NEURON, VIRGINIA, all_actions, release, stages
from tests.stacks.templates import assert_is_snapshot, make_app
from workloads import ROOT, UsageError, load_workload
from workloads.folder import with_settings

MEASURING = ["SmokeTest", "Measure", "PerformanceGate", "Register", "Propose", "TakeDown"]
OF_A_SERVICE = ["Measure", "PerformanceGate", "Propose", "TakeDown"]
SCRIPTS = ROOT / "scripts" / "release"
OLDER_CONNECTION = CONNECTION.replace("codeconnections", "codestar-connections")


@pytest.fixture(scope="module")
def actions(template: dict[str, Any]) -> dict[str, list[list[str]]]:
    """The actions of each stage, in the groups that run together, in order."""
    (pipeline,) = (r for r in template["Resources"].values() if r["Type"] == "AWS::CodePipeline::Pipeline")
    return {stage["Name"]: in_order(stage["Actions"]) for stage in pipeline["Properties"]["Stages"]}


def in_order(actions: list[dict[str, Any]]) -> list[list[str]]:
    orders = sorted({action["RunOrder"] for action in actions})
    return [sorted(a["Name"] for a in actions if a["RunOrder"] == order) for order in orders]


def deployments(groups: list[list[str]]) -> list[str]:
    return [name for group in groups for name in group if name.endswith(".Deploy")]


def test_models_are_built_and_pass_the_parity_gate_before_anything_is_synthesised(
    actions: dict[str, list[list[str]]],
) -> None:
    assert list(actions) == ["Source", "Build", "UpdatePipeline", "Assets", "Beta", "Production"]
    assert actions["Build"] == [["Check"], ["BuildModel", "Images"], ["ParityGate"], ["Synth"]]


@pytest.mark.parametrize("workload", ON_NEURON)
def test_a_model_for_inferentia_is_recorded_on_its_chip_before_its_gate(
    workload: str, templates: dict[str, dict[str, Any]]
) -> None:
    build = in_order(stages(templates[workload])[1]["Actions"])
    assert build == [["Check"], ["BuildModel", "Images"], ["Record"], ["ParityGate"], ["Synth"]]


@pytest.mark.parametrize(
    ("workload", "before", "stacks", "after"),
    [
        *((name, "Clear", [name], MEASURING) for name in ENDPOINTS),
        ("query_intent", "Clear", ["query_intent", "shared_network"], OF_A_SERVICE),
        ("duplicates", None, ["duplicates", "shared_network"], []),
    ],
)
def test_beta_tests_measures_compares_proposes_and_takes_down(
    workload: str, before: str | None, stacks: list[str], after: list[str], templates: dict[str, dict[str, Any]]
) -> None:
    """A batch's instances end with it."""
    (beta,) = (stage for stage in stages(templates[workload]) if stage["Name"] == "Beta")
    groups = in_order(beta["Actions"])
    assert groups[0] == [before] or before is None
    assert set(deployments(groups)) == {f"{name.title().replace('_', '')}Stack.Deploy" for name in stacks}
    assert [group for group in groups if not any("." in name for name in group)][bool(before) :] == [
        [name] for name in after
    ]


def test_production_deploys_only_measured_artifacts(
    app: App, actions: dict[str, list[list[str]]], templates: dict[str, dict[str, Any]]
) -> None:
    assert deployments(actions["Production"]) == ["SpellcheckStack.Deploy"]
    assert (actions["Production"][0], actions["Production"][-1]) == (["PauseScaling"], ["KeepBaseline"])
    in_production = {name for name, made in templates.items() if stages(made)[-1]["Name"] == "Production"}
    assert in_production == {"duplicates", "spellcheck"}, "a batch needs no measurement"
    stack = app.node.find_child("TextClassificationReleaseStack")
    assert isinstance(stack, Stack)
    Annotations.from_stack(stack).has_info(
        "/TextClassificationReleaseStack",
        Match.string_like_regexp(
            r"text_classification is not in production yet\. .*recommendation\.json: does not exist"
        ),
    )


@pytest.fixture(scope="module")
def before_production(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The release of one workload that was built and not measured, by a connection of the older name."""
    repository = as_committed(tmp_path_factory.mktemp("unmeasured"), "spellcheck")
    (stack,) = release(repository.root, OLDER_CONNECTION).synth().stacks
    return dict(stack.template)


def test_without_a_measurement_there_is_no_production_stage(before_production: dict[str, Any]) -> None:
    names = [stage["Name"] for stage in stages(before_production)]
    assert names == ["Source", "Build", "UpdatePipeline", "Assets", "Beta"]


def test_the_first_deployment_of_the_pipeline_needs_no_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes the pipeline has built nothing: it builds, and then adds the stages to itself."""
    for name in ("CloudFormationValidatePlugin", "Validations"):
        monkeypatch.setattr(f"stacks.app.{name}", Mock())  # they take seconds, and other tests have them
    repository = as_committed(tmp_path, "spellcheck")
    shutil.rmtree(tmp_path / "build")
    app = make_app(tmp_path / "cdk.out", {"release-repository": "example/models", "release-connection": CONNECTION})
    assert add_all(app, repository.root, VIRGINIA, None) == 0
    (stack,) = app.synth().stacks
    assert [stage["Name"] for stage in stages(stack.template)] == ["Source", "Build", "UpdatePipeline"]
    assert "BuildModel" in {action["Name"] for action in stages(stack.template)[1]["Actions"]}


def test_a_new_artifact_is_synthesised_beside_the_recommendation_of_the_one_before(
    tmp_path: Path, template: dict[str, Any]
) -> None:
    """Without the option, the stacks beside the stages would reject that recommendation."""
    repository = as_committed(tmp_path, "spellcheck")
    repository.recommend(candidate(instance_type="ml.c5.xlarge"), archive_sha256="f" * 64)
    ((key, value),) = re.findall(
        r"npx cdk synth --quiet -c (\w+)=(\w+) -c release=spellcheck", json.dumps(build_specs(template))
    )
    with pytest.raises(NothingBuilt):
        add_stacks(make_app(tmp_path / "without"), repository.root, VIRGINIA, read_options(context()))
    add_stacks(make_app(tmp_path / "with"), repository.root, VIRGINIA, read_options(context(**{key: value})))


def test_an_accelerators_model_is_built_by_a_processing_job_and_a_cpus_in_place(
    templates: dict[str, dict[str, Any]],
) -> None:
    commands = "\n".join(json.dumps(spec) for template in templates.values() for spec in build_specs(template))
    assert re.search(
        r"build_model\.sh text_classification trt-db-ig --on sagemaker --set recommender\.role_arn=", commands
    )
    assert re.search(r"build_model\.sh spellcheck cpu\b(?! --on)", commands)


def test_a_build_leaves_out_the_key_and_the_network_of_measurements() -> None:
    """Its role may use neither."""
    key = "recommender.kms_key_arn=arn:aws:kms:us-east-1:123456789012:key/k"
    settings = [key, "recommender.subnets=a", "recommender.security_groups=b"]
    workload = with_settings(load_workload("text_classification"), settings).workload
    assert _model(workload).unused_facts == ("kms_key_arn", "subnets", "security_groups")


def test_a_shadow_is_built_beside_the_model_and_handed_on_to_the_synthesis(template: dict[str, Any]) -> None:
    """Without its build the stack would be left out of every stage, without a word."""
    (project,) = (project for name, project in projects_of(template).items() if "BuildBuild" in name)
    commands = json.loads(project["Source"]["BuildSpec"])["phases"]["build"]["commands"]
    assert commands[-2:] == [f"bash scripts/release/build_model.sh spellcheck {name}" for name in ("cpu", "cpu-int8")]
    (synthesis,) = (project for name, project in projects_of(template).items() if "BuildSynth" in name)
    assert "build/spellcheck/cpu-int8" in json.dumps(synthesis["Source"])


def projects_of(template: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """CodeBuild's projects by logical id, those of CDK Pipelines among them."""
    found = {
        name: r["Properties"] for name, r in template["Resources"].items() if r["Type"] == "AWS::CodeBuild::Project"
    }
    assert found
    return found


def statements_of(template: dict[str, Any], role: str) -> list[dict[str, Any]]:
    policies = [r["Properties"] for r in template["Resources"].values() if r["Type"] == "AWS::IAM::Policy"]
    return [
        statement
        for policy in policies
        if {"Ref": role} in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def test_only_the_propose_step_gets_a_clone(template: dict[str, Any]) -> None:
    configured = {a["Name"]: a["Configuration"] for a in stages(template)[0]["Actions"]}
    assert "OutputArtifactFormat" not in configured["Files"], "a zip, without the history"
    assert configured["Clone"]["OutputArtifactFormat"] == "CODEBUILD_CLONE_REF"
    assert configured["Clone"]["DetectChanges"] is False, "one push, one release"
    cloning = {a["Name"] for a in all_actions(template) if {"Name": "Clone"} in a.get("InputArtifacts", [])}
    assert cloning == {"Propose"}
    may_use = {
        name
        for name, project in projects_of(template).items()
        if "UseConnection" in json.dumps(statements_of(template, project["ServiceRole"]["Fn::GetAtt"][0]))
    }
    (name,) = may_use
    assert "Propose" in name


def test_only_the_images_step_is_privileged_and_pushes(templates: dict[str, dict[str, Any]]) -> None:
    template = templates["question_answering"]
    projects = projects_of(template)
    privileged = {name for name, project in projects.items() if project["Environment"]["PrivilegedMode"]}
    (name,) = (name for name in projects if "BuildImages" in name)
    assert privileged == {name}
    spec = json.loads(projects[name]["Source"]["BuildSpec"]["Fn::Join"][1][0].partition(" inf1")[0] + '"]}}}')
    assert spec["phases"]["build"]["commands"][-1] == "bash scripts/release/build_image.sh"
    role = projects[name]["ServiceRole"]["Fn::GetAtt"][0]
    statements = statements_of(template, role)
    pushing = [s for s in statements if "ecr:PutImage" in s["Action"]]
    assert [s["Resource"]["Fn::GetAtt"][1] for s in pushing] == ["Arn"]
    bases = json.dumps([s["Resource"] for s in statements if "ecr:BatchGetImage" in s["Action"] and s not in pushing])
    assert set(re.findall(r":repository/([a-z0-9-]+)", bases)) == {"pytorch-inference-neuron"}


def test_roles_use_the_connection_under_the_service_name_of_its_arn(
    template: dict[str, Any], before_production: dict[str, Any]
) -> None:
    """IAM compares an action's service with the resource's; CDK knows the older one alone."""
    for made, connection in ((template, CONNECTION), (before_production, OLDER_CONNECTION)):
        sources = {a["RoleArn"]["Fn::GetAtt"][0] for a in all_actions(made) if a["Name"] in ("Files", "Clone")}
        pushing = {
            project["ServiceRole"]["Fn::GetAtt"][0] for name, project in projects_of(made).items() if "Propose" in name
        }
        assert (len(sources), len(pushing)) == (1, 1)
        action = f"{connection.split(':')[2]}:UseConnection"
        for role in sources | pushing:
            granted = [s for s in statements_of(made, role) if s["Action"] == action]
            assert [s["Resource"] for s in granted] == [connection]


def test_only_a_push_gets_gits_credentials(template: dict[str, Any]) -> None:
    specs = {
        name: json.loads(text)
        for name, project in projects_of(template).items()
        if isinstance(text := project["Source"].get("BuildSpec"), str)
    }
    pushing = {name for name, spec in specs.items() if "propose.sh" in json.dumps(spec)}
    assert len(pushing) == 1
    assert {name for name, spec in specs.items() if "git-credential-helper" in spec.get("env", {})} == pushing
    assert {specs[name]["env"]["git-credential-helper"] for name in pushing} == {"yes"}


def test_a_proposal_is_made_on_the_commit_that_was_measured(template: dict[str, Any]) -> None:
    (action,) = (a for a in all_actions(template) if a["Name"] == "Propose")
    variables = {v["name"]: v["value"] for v in json.loads(action["Configuration"]["EnvironmentVariables"])}
    (source,) = (a for a in stages(template)[0]["Actions"] if a["Name"] == "Files")
    assert variables["COMMIT"] == f"#{{{source['Namespace']}.CommitId}}"
    (project,) = (p for name, p in projects_of(template).items() if "Propose" in name)
    commands = json.loads(project["Source"]["BuildSpec"])["phases"]["build"]["commands"]
    assert commands[0] == 'git checkout --quiet --detach "$COMMIT"'


def test_a_build_can_write_only_its_own_cache_and_folder(templates: dict[str, dict[str, Any]]) -> None:
    """Builds run code of strangers: each has a role and two folders of its pipeline's bucket."""
    for workload, template in templates.items():
        projects = projects_of(template)
        (name,) = (name for name in projects if "BuildBuild" in name)
        build = projects[name]
        assert build["Cache"]["Location"]["Fn::Join"][1][-1] == f"/caches/{workload}"
        role = build["ServiceRole"]["Fn::GetAtt"][0]
        writing = [s for s in statements_of(template, role) if "s3:PutObject" in s["Action"]]
        arns = [arn for s in writing for arn in (s["Resource"] if isinstance(s["Resource"], list) else [s["Resource"]])]
        objects = {
            json.dumps(arn["Fn::Join"][1]) for arn in arns if "Fn::Join" in arn and "Releases" in json.dumps(arn)
        }
        suffixes = {parts.rpartition(', "')[2].removesuffix('"]') for parts in objects}
        assert suffixes == {f"/caches/{workload}/*", f"/model-build/{workload}/*"}
        (images,) = (project for other, project in projects.items() if "BuildImages" in other)
        assert images["Cache"] == {"Type": "LOCAL", "Modes": ["LOCAL_DOCKER_LAYER_CACHE"]}
        others = [project for project in projects.values() if project not in (build, images)]
        assert {project["Cache"]["Type"] for project in others} == {"NO_CACHE"}


def test_every_step_installs_from_a_lock(templates: dict[str, dict[str, Any]]) -> None:
    """CDK Pipelines would else install whatever npm has that day."""
    specs = json.dumps([build_specs(template) for template in templates.values()])
    installs = re.findall(r"(?:pip|uv|npm) (?:install|ci|i)\b[^\"\\]*", specs)
    cli = json.loads((ROOT / "package.json").read_text("utf-8"))["devDependencies"]["aws-cdk"]
    assert set(installs) == {
        "npm ci --no-audit --no-fund",
        f"npm install -g aws-cdk@{cli}",
        f"npm install -g cdk-assets@{steps.CDK_ASSETS}",
    }
    locks = set(re.findall(r"install_locked\.sh python ([^\"\\]+)", specs))
    assert locks == {"requirements/build.txt torch", "requirements/cdk.txt", "requirements/project.txt"}


def test_what_is_published_has_the_newest_schema_that_cdk_assets_reads(
    app: App, template: dict[str, Any], tmp_path: Path
) -> None:
    """4.7.3 refuses schema 55, in which a manifest of assets looks as in 54. Any other schema stays, and is refused."""
    manifests = list(Path(app.synth().directory).rglob("*.assets.json"))
    before = [json.loads(manifest.read_text("utf-8")) for manifest in manifests]
    copies = [tmp_path / "cdk.out" / str(number) / manifest.name for number, manifest in enumerate(manifests)]
    for manifest, copy in zip(manifests, copies, strict=True):
        copy.parent.mkdir(parents=True)
        shutil.copy(manifest, copy)
    newer = tmp_path / "cdk.out" / "newer.assets.json"
    newer.write_text('{\n  "version": "56.0.0"\n}')
    (synth,) = (project for name, project in projects_of(template).items() if "BuildSynth" in name)
    (command,) = (
        line for line in json.loads(synth["Source"]["BuildSpec"])["phases"]["build"]["commands"] if "sed" in line
    )
    subprocess.run(["bash", "-c", command], cwd=tmp_path, check=True)
    assert {manifest["version"] for manifest in before} == {"55.0.0"}
    after = [json.loads(copy.read_text("utf-8")) for copy in copies]
    assert after == [{**manifest, "version": "54.0.0"} for manifest in before]
    assert json.loads(newer.read_text("utf-8")) == {"version": "56.0.0"}


def test_the_steps_that_ask_and_measure_install_what_the_recommender_imports() -> None:
    """They had the client's packages alone: each ended with "No module named 'rich'", as a rehearsed release showed."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    wanted = {re.split(r"[><=; ]", each)[0] for each in extras["measure"]}
    pinned = set(re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements/project.txt").read_text("utf-8")))
    assert wanted <= pinned


def build_specs(template: dict[str, Any]) -> list[Any]:
    projects = (r for r in template["Resources"].values() if r["Type"] == "AWS::CodeBuild::Project")
    return [project["Properties"]["Source"].get("BuildSpec") for project in projects]


def test_every_script_of_a_release_is_a_step(templates: dict[str, dict[str, Any]]) -> None:
    scripts = {file.name for file in SCRIPTS.glob("*.sh")}
    in_vpc = "\n".join(COMMANDS)
    specs = json.dumps([*map(build_specs, templates.values()), in_vpc])
    assert set(re.findall(r"scripts/release/([a-z_]+\.sh)", specs)) == scripts


def test_the_template_is_the_one_last_reviewed(template: dict[str, Any]) -> None:
    text = re.sub(r"[0-9a-f]{64}", "HASH", json.dumps(template, indent=1, sort_keys=True)) + "\n"
    assert_is_snapshot("SpellcheckReleaseStack", text)


def context(**values: str) -> Callable[[str], Any]:
    return {key.replace("_", "-"): value for key, value in values.items()}.get


def test_without_a_repository_there_is_no_pipeline() -> None:
    assert read_release(context()) is None
    given = read_release(context(release_repository="o/n", release_connection=CONNECTION, release_branch="trunk"))
    assert given == ReleaseSource(repository="o/n", connection_arn=CONNECTION, branch="trunk")


@pytest.mark.parametrize(
    ("given", "missing"),
    [({"release_repository": "o/n"}, "release-connection"), ({"release_connection": CONNECTION}, "release-repository")],
)
def test_an_incomplete_source_is_rejected(given: dict[str, str], missing: str) -> None:
    assert message_of(UsageError, read_release, context(**given)) == (
        f"cdk.json: context.{missing}: is missing. A release pipeline needs release-repository (OWNER/NAME) and "
        "release-connection (the ARN of an AWS CodeConnections connection)."
    )


def test_a_malformed_source_is_rejected() -> None:
    with pytest.raises(UsageError) as caught:
        read_release(context(release_repository="models", release_connection=CONNECTION))
    assert str(caught.value) == "cdk.json: context.release-repository: got 'models'. Write it as OWNER/NAME."
    with pytest.raises(UsageError) as caught:
        read_release(context(release_repository="o/n", release_connection="connection/1"))
    assert str(caught.value) == (
        "cdk.json: context.release-connection: got 'connection/1'. "
        "Write it as arn:aws:codeconnections:REGION:ACCOUNT:connection/ID."
    )
