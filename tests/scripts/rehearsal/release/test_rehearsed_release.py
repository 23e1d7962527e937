"""A small pipeline on a real local account: missing permissions stop it. And the whole rehearsal."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from local_aws.process.local_account import LocalAccount
from scripts.rehearsal.release.__main__ import rehearse
from scripts.rehearsal.release.execution import ExecutionState, Outcome, Runner, Storage
from scripts.rehearsal.release.machine import Machine
from scripts.rehearsal.release.permissions import CallLog, Denied, Roles
from scripts.rehearsal.release.sources import Repository
from scripts.rehearsal.release.workload_changes import GPU_TYPES
from tests.builders import message_of
from tests.local_aws.conftest import allow, make_role, policy_document
from tests.scripts.rehearsal.release.templates import ACCOUNT, build, commands, pipeline, project, source
from workloads import ROOT

NEEDED = (ROOT / ".venv-aws-cli/bin/aws", ROOT / "build/venv-lock/bin/uv")
pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(file.exists() for file in NEEDED),
        reason="there is no AWS CLI or no uv: `make aws-cli uv` installs them",
    ),
]

CODEBUILD = f"arn:aws:codebuild:us-east-1:{ACCOUNT}:project/Step"
OUTPUTS = "arn:aws:s3:::artifacts/*"
GRANTS: dict[str, list[dict[str, Any]]] = {
    "PipelineRole": [allow("sts:AssumeRole")],
    "ActionRole": [allow("codebuild:StartBuild", resource=CODEBUILD)],
    "SourceRole": [allow("s3:PutObject", resource=OUTPUTS)],
    "BuildRole": [allow("s3:GetObject", "s3:PutObject", resource=OUTPUTS), allow("ssm:GetParameter")],
}
"""The minimal statements of the roles."""


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAccount]:
    with LocalAccount.start(state=tmp_path_factory.mktemp("account")) as account:
        s3, iam = (Roles(account.environment).as_owner(name) for name in ("s3", "iam"))
        s3.create_bucket(Bucket="artifacts")
        for name, statements in GRANTS.items():
            make_role(iam, name, *statements, trusted={"AWS": ACCOUNT})
        yield account


def grant(account: LocalAccount, role: str, statements: list[dict[str, Any]]) -> None:
    iam = Roles(account.environment).as_owner("iam")
    iam.put_role_policy(RoleName=role, PolicyName="inline", PolicyDocument=policy_document(*statements))


def test_each_client_of_a_role_has_a_new_session(account: LocalAccount) -> None:
    roles = Roles(account.environment)
    clients = [roles.client("s3", f"arn:aws:iam::{ACCOUNT}:role/SourceRole") for _ in range(2)]
    assert len({client._request_signer._credentials.access_key for client in clients}) == 2


def released(account: LocalAccount, folder: Path, *step: str) -> tuple[Outcome, CallLog]:
    """Runs the source and one build, and returns the build's outcome."""
    calls = CallLog(account.log_file.parent / "calls.jsonl")
    with suppress(Denied):  # other tests' denials
        calls.check("before")
    stages = {"Source": [source("Files")], "Build": [build("Step", 1, ["Files"], ["Made"])]}
    spec = {**commands("mkdir out", *step), "artifacts": {"base-directory": "out", "files": ["**/*"]}}
    made = pipeline(stages, Step=project(spec))
    origin = folder / "origin"
    origin.mkdir()
    (origin / "in.txt").write_text("one\n")
    Repository(folder / "none", origin).git("init", "--quiet")
    repository = Repository.make(origin, folder / "repository")
    storage = Storage(Roles(account.environment), made.bucket)
    machine = Machine.make(folder / "tools")
    runner = Runner(
        pipeline=made,
        storage=storage,
        machine=machine,
        repository=repository,
        folder=folder / "work",
        stand_ins_log=folder / "stand_ins.log",
        on_line=lambda action, line: None,
    )
    state = ExecutionState(commit=repository.commit("one"))
    state, first = runner.run(made.action("Source", "Files"), state)
    assert first.failure is None
    return runner.run(made.action("Build", "Step"), state)[1], calls


def test_a_build_stores_its_output(account: LocalAccount, tmp_path: Path) -> None:
    outcome, calls = released(account, tmp_path, "cp in.txt out/", "python -c 'import sys; print(sys.prefix)'")
    assert outcome.failure is None
    assert outcome.log[-1].endswith("/python")
    calls.check("Build/Step")
    assert calls.roles["BuildRole"] >= {"s3:GetObject", "s3:PutObject"}


@pytest.mark.parametrize(
    ("role", "lacks"),
    [("BuildRole", "s3:PutObject on resource: arn:aws:s3:::artifacts/"), ("ActionRole", "codebuild:StartBuild")],
)
def test_a_missing_permission_stops_the_release(account: LocalAccount, tmp_path: Path, role: str, lacks: str) -> None:
    grant(account, role, [allow("s3:GetObject", resource=OUTPUTS)])
    try:
        outcome, _ = released(account, tmp_path, "cp in.txt out/")
    finally:
        grant(account, role, GRANTS[role])
    assert isinstance(outcome.failure, Denied)
    assert f"assumed-role/{role}/" in str(outcome.failure)
    assert lacks in str(outcome.failure)


def test_a_denied_call_that_a_program_ignores_is_found(account: LocalAccount, tmp_path: Path) -> None:
    outcome, calls = released(account, tmp_path, "cp in.txt out/", "aws s3 ls s3://artifacts || true")
    assert outcome.failure is None
    role = f"arn:aws:iam::{ACCOUNT}:role/BuildRole"
    assert message_of(Denied, calls.check, "Build/Step") == (
        f"Build/Step: {role} may not s3:ListBucket on arn:aws:s3:::artifacts."
    )


def test_the_whole_rehearsal_goes_as_expected(tmp_path: Path) -> None:
    transcript: list[str] = []
    rehearse(tmp_path / "release-rehearsal", transcript.append)
    assert [line for line in transcript if line.startswith("## ")][-1].startswith("## Calls by role")
    builders = [line for line in transcript if "trtexec of the image sagemaker-tritonserver:" in line]
    assert {line.partition(",")[0] for line in builders} == {f"the GPU of {each}" for each in GPU_TYPES}
