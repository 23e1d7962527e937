"""Errors at synth, each with its whole message: refusals.toml."""

import re
from pathlib import Path
from typing import Any

import pytest
import tomllib
from aws_cdk import Environment
from aws_cdk.region_info import Fact

from stacks.context import Options
from stacks.deployment import measure_command
from tests.stacks.miniature import Repository, candidate, make_ec2_repository, make_repository, service_candidate
from workloads import MissingArtifact, ProjectError, file_sha256, instances
from workloads.own_images import TRITON_LOCKS

TABLE: dict[str, dict[str, Any]] = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text())
WORKLOADS = {"endpoint": "spellcheck", "service": "query_intent", "batch": "duplicates"}


@pytest.mark.parametrize("name", TABLE)
def test_synth_is_refused(name: str, tmp_path: Path) -> None:
    case = TABLE[name]
    repository = prepared(tmp_path, case)
    region = case.get("region")
    environment = Environment(account="123456789012", region=region) if region else None
    with pytest.raises(ProjectError) as refused:
        repository.synthesise(environment, Options(stage=case.get("stage", "beta")))
    message = str(refused.value)
    assert (message.splitlines()[0] if case.get("first_line") else message) == expected(repository, case["message"])


def prepared(root: Path, case: dict[str, Any]) -> Repository:
    kind = case.get("on", "endpoint")
    workload = case.get("workload", WORKLOADS[kind])
    if kind == "endpoint":
        repository = make_repository(root, workload)
    else:
        repository = make_ec2_repository(root, workload, case.get("target", "inf1"))
    for target, changes in case.get("build", {}).items():
        repository.build(target, **changes)
    if kind == "endpoint":
        repository.host(case.get("target", "cpu"), **case.get("host", {}))
    repository.change_hosting(**case.get("hosting", {}))
    for target, types in case.get("types", {}).items():
        repository.instance_types(target, *types)
    text = repository.workload_file.read_text("utf-8").replace(*case.get("replace", ("", "")))
    changed = f"{text}{case.get('append', '')}\n"
    if "recommend" in case:
        make = candidate if kind == "endpoint" else service_candidate
        keys = case["recommend"]
        values = {key: None if value == "null" else value for key, value in (keys or {}).items()}
        repository.recommend(None if keys is False else make(**values), **case.get("recommendation", {}))
        if replacement := case.get("replace_recommendation"):
            written = repository.recommendation_file.read_text("utf-8").replace(*replacement)
            repository.recommendation_file.write_text(written, "utf-8")
    repository.workload_file.write_text(changed, "utf-8")
    return repository


def expected(repository: Repository, message: str) -> str:
    message = message.replace("{toml}", str(repository.workload_file))
    message = message.replace("{json}", str(repository.recommendation_file))
    message = message.replace("{regions}", ", ".join(Fact.regions)).replace("{kinds}", ", ".join(TRITON_LOCKS))
    message = re.sub(r"{offered:(\w+)}", lambda match: ", ".join(sorted(instances.zones(match[1]) or ())), message)
    if "{measure}" in message:
        message = message.replace("{measure}", measure_command(repository.folder))
    return message.replace("{sha256}", file_sha256(repository.archive)[:12]) if "{sha256}" in message else message


def test_unknown_zones_and_regions_are_accepted(tmp_path: Path) -> None:
    repository = make_repository(tmp_path)
    repository.host(network={"kind": "new-vpc", "zone_ids": ["usw2-az1", "usw2-az4"]})
    repository.synthesise(Environment(account="123456789012", region="eu-west-1"))


def test_a_shadow_that_is_not_built_names_the_command_to_build_it(tmp_path: Path) -> None:
    repository = make_repository(tmp_path)
    repository.host(shadow={"target": "cpu-int8", "instance_type": "ml.c5.xlarge"})
    with pytest.raises(ProjectError) as refused:
        repository.synthesise()
    missing = MissingArtifact(repository.artifact_file("cpu-int8"), "spellcheck", "cpu-int8")
    assert str(refused.value).splitlines()[-1] == str(missing)
