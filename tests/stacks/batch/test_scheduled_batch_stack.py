"""The stack of a scheduled batch: one test for each intention."""

import json
from pathlib import Path
from typing import Any

import pytest

from stacks.context import PRODUCTION, Options
from tests.stacks.miniature import Repository, Synthesis, kinds, make_ec2_repository
from tests.stacks.templates import filled


@pytest.fixture(scope="module")
def beta(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    return make_ec2_repository(tmp_path_factory.mktemp("beta"), "duplicates").synthesise()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_ec2_repository(tmp_path, "duplicates")


def definition(synthesis: Synthesis) -> dict[str, Any]:
    machine = synthesis.only("AWS::StepFunctions::StateMachine")
    return dict(json.loads(filled(machine["DefinitionString"])))


def tasks(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    """The container of each task definition, by what its command does."""
    found = {}
    for each in synthesis.of_type("AWS::ECS::TaskDefinition").values():
        (container,) = each["Properties"]["ContainerDefinitions"]
        found["account" if "batch.account" in filled(container["Command"][2]) else "shard"] = container
    return found


def test_inf2_needs_one_changed_line(tmp_path: Path, batch: Synthesis) -> None:
    synthesis = make_ec2_repository(tmp_path, "duplicates", "inf2").synthesise(options=PRODUCTION)
    assert kinds(synthesis) == kinds(batch)
    assert synthesis.notes("inferentia:legacy") == []
    shard = tasks(synthesis)["shard"]
    assert [each["HostPath"] for each in shard["LinuxParameters"]["Devices"]] == ["/dev/neuron0"]
    assert "/transformers-in-production:inf2-" in filled(shard["Image"])
    assert synthesis.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["InstanceType"] == "inf2.xlarge"
    parameters = synthesis.json["Parameters"].values()
    assert any("amazon-linux-2023/neuron/recommended" in str(each.get("Default")) for each in parameters)


def test_a_stack_for_inf1_has_a_note_on_moving_to_inf2(batch: Synthesis) -> None:
    """It is information, which `cdk synth --strict` lets pass."""
    (note,) = batch.notes("inferentia:legacy")
    assert note.endswith(
        "workload.toml: hosting.target: 'inf1' is for Inf1, which AWS calls legacy: its last images are Neuron 2.20's, "
        'its last driver is 2.24. New projects go to Inf2: build it for inf2 and say hosting.target = "inf2".'
    )


def test_every_shard_runs_at_once_then_every_row_is_accounted_for(batch: Synthesis) -> None:
    machine = definition(batch)
    states = machine["States"]
    assert states["Is there input?"]["Default"] == "Answer every shard"
    assert states[machine["StartAt"]]["Parameters"] == {
        "day.$": "States.ArrayGetItem(States.StringSplit($.time, 'T'), 0)",
        "shards": ["1/3", "2/3", "3/3"],
    }
    every = states["Answer every shard"]
    assert every["ItemsPath"] == "$.shards"
    assert "MaxConcurrency" not in every
    assert every["Next"] == "Account for every row"
    assert states["Account for every row"]["End"] is True


def test_a_failed_shard_is_retried_until_the_deadline(batch: Synthesis) -> None:
    machine = definition(batch)
    assert machine["TimeoutSeconds"] == 6 * 3600
    text = json.dumps(machine)
    assert text.count('"Retry"') == text.count('"Type": "Task"') == 3
    assert text.count('"MaxAttempts": 3') == 3


def test_the_steps_may_list_the_input_and_nothing_more_of_it(batch: Synthesis) -> None:
    (role,) = (name for name in batch.of_type("AWS::IAM::Role") if name.startswith("StepsRole"))
    policies = [each["Properties"] for each in batch.of_type("AWS::IAM::Policy").values()]
    (own,) = (each["PolicyDocument"] for each in policies if each["Roles"] == [{"Ref": role}])
    (listing,) = (each for each in own["Statement"] if "s3:" in json.dumps(each["Action"]))
    assert listing["Action"] == "s3:ListBucket"
    assert listing["Resource"]["Fn::GetAtt"][0].startswith("StorageInput")


def test_a_rehearsal_runs_the_same_steps_on_cpu_instances(repository: Repository) -> None:
    repository.build("cpu")
    rehearsed = repository.synthesise(options=Options(hosting_target="cpu"))
    assert rehearsed.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["InstanceType"] == "c5.xlarge"
    assert "Devices" not in tasks(rehearsed)["shard"]["LinuxParameters"]
    assert list(definition(rehearsed)["States"]) == [
        "Name the run after its day",
        "Look for the day's input",
        "Is there input?",
        "Answer every shard",
        "Account for every row",
        "There is no input",
    ]


def test_inputs_and_outputs_are_encrypted_versioned_logged_and_take_tls_only(batch: Synthesis) -> None:
    buckets = batch.of_type("AWS::S3::Bucket")
    assert len(buckets) == 3
    for each in buckets.values():
        assert each["Properties"]["BucketEncryption"]
        assert set(each["Properties"]["PublicAccessBlockConfiguration"].values()) == {True}
    kept = [each for each in buckets.values() if "VersioningConfiguration" in each["Properties"]]
    assert len(kept) == 2
    assert all(each["Properties"]["LoggingConfiguration"] and each["DeletionPolicy"] == "Retain" for each in kept)
    policies = batch.of_type("AWS::S3::BucketPolicy").values()
    denials = [
        statement["Condition"]
        for policy in policies
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
    ]
    assert denials == [{"Bool": {"aws:SecureTransport": "false"}}] * 3


def test_a_named_key_encrypts_rows_answers_and_logs(repository: Repository, batch: Synthesis) -> None:
    assert not batch.of_type("AWS::KMS::Key")
    key = "arn:aws:kms:us-east-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
    repository.change_hosting(kms_key_arn=key)
    synthesis = repository.synthesise()
    rules = [
        each["Properties"]["BucketEncryption"]["ServerSideEncryptionConfiguration"][0]["ServerSideEncryptionByDefault"]
        for each in synthesis.of_type("AWS::S3::Bucket").values()
    ]
    assert [rule.get("KMSMasterKeyID") for rule in rules] == [None, key, key]  # S3 logs to no bucket with another key
    logs = [each.get("Properties", {}) for each in synthesis.of_type("AWS::Logs::LogGroup").values()]
    assert [each.get("KmsKeyId") for each in logs].count(key) == 2


def alarms(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    """Returns the alarms by their id, without the hash that CDK adds to it."""
    found = synthesis.of_type("AWS::CloudWatch::Alarm")
    return {name[:-8]: each["Properties"] for name, each in found.items()}


def test_only_a_daily_schedule_has_an_alarm_for_missed_runs(repository: Repository) -> None:
    repository.change_hosting(schedule="cron(0 2 ? * MON *)")
    synthesis = repository.synthesise(options=PRODUCTION)
    assert set(alarms(synthesis)) == {"WatchFailed", "WatchLate", "WatchSlow"}


def test_the_schedule_is_disabled_in_beta(beta: Synthesis, batch: Synthesis) -> None:
    assert (batch.only("AWS::Events::Rule")["State"], batch.notes("batch:schedule-off")) == ("ENABLED", [])
    assert beta.only("AWS::Events::Rule")["State"] == "DISABLED"
    assert set(alarms(beta)) == {"WatchFailed", "WatchLate", "WatchSlow"}
    assert beta.notes("batch:schedule-off") == [
        "The schedule is off outside of -c stage=production: start a run yourself, as docs/deploying.md says."
    ]


def test_a_task_reads_its_rows_and_deletes_none(batch: Synthesis) -> None:
    for policy in batch.of_type("AWS::IAM::Policy").values():
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            assert not [action for action in actions if "Delete" in action and action.startswith("s3")]
