"""`python -m stacks preflight` against the account on this machine: what it prints, and what it cannot ask there."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from local_aws.process.local_account import LocalAccount
from stacks.__main__ import main
from stacks.preflight import driver_probe
from tests.local_aws.conftest import REPLAYING, ROLE, wait_until
from workloads import ROOT, Unavailable

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("account_variables")]


def test_a_check_that_fails_is_exit_code_1_and_what_the_account_lacks_is_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["preflight", "DuplicatesStack", "--region", "us-west-2", "--json"]) == 1
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert shown.err == ""
    assert (document["account"], document["region"], document["stage"]) == ("123456789012", "us-west-2", "beta")
    checks = {check["check"]: check for check in document["checks"]}
    quota = checks["quota of ec2: Running On-Demand Inf instances"]
    assert (quota["verdict"], quota["found"]) == (
        "unknown",
        "AWS refused ListAWSDefaultServiceQuotas: NoSuchResourceException: This local account has no quotas of ec2. "
        "`python -m local_aws --quotas new-account` has some.",
    )
    assert checks["AMI of amazon-linux-2023/neuron"]["verdict"] == "pass"
    assert [name for name, check in checks.items() if check["verdict"] == "fail"] == ["cdk bootstrap"]
    assert all((check["what_to_do"] is not None) is (check["verdict"] == "fail") for check in checks.values())


def test_a_new_account_lacks_the_quotas_of_accelerators_and_of_remote_builds(
    tmp_path: Path, toolchain: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, state = tmp_path / "repository", tmp_path / "account"
    # `make run` leaves a recommendation in the checkout, of an instance type that has a quota.
    ignored = shutil.ignore_patterns("checkpoint", "__pycache__", "recommendation.json")
    shutil.copytree(ROOT / "workloads", root / "workloads", ignore=ignored)
    shutil.copy(ROOT / "cdk.json", root)
    with LocalAccount.start(state=state, toolchain=toolchain, quotas="new-account", program=REPLAYING) as account:
        for name, value in account.environment.items():
            monkeypatch.setenv(name, value)
        assert main(["preflight", "SpellcheckStack", "QueryIntentStack", "--json"], root) == 1
    checks = {check["check"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    lacking = {name: check for name, check in checks.items() if name.startswith("quota") and check["verdict"] == "fail"}
    assert set(lacking) == {
        "quota of sagemaker: ml.g5.xlarge for endpoint usage",
        "quota of sagemaker: ml.g4dn.xlarge for endpoint usage",
        "quota of sagemaker: ml.g6.xlarge for endpoint usage",
        "quota of sagemaker: ml.g5.xlarge for processing job usage",
        "quota of sagemaker: ml.g4dn.xlarge for processing job usage",
        "quota of sagemaker: ml.g6.xlarge for processing job usage",
        "quota of ec2: Running On-Demand Inf instances",
        "quota of sagemaker: ml.c5.4xlarge for processing job usage",
    }
    assert lacking["quota of ec2: Running On-Demand Inf instances"]["found"] == (
        "0 of 48 needed (vCPUs of 1 inf1.6xlarge at the peak, and as many during an update)."
    )


def test_a_probe_starts_a_server_and_deletes_everything(sagemaker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--probe", "ml.c5.xlarge", "--role-arn", ROLE, "--json"]) == 0
    shown = capsys.readouterr()
    result = json.loads(shown.out)
    assert result["image"].endswith("sagemaker-tritonserver:25.09-py3-cpu")
    assert (result["expected"], result["started"]) == (True, True)
    assert result["detail"] == "it answers, and the host has no CUDA driver"
    assert "is Creating: 0 min" in shown.err
    wait_until(lambda: "probe-ml-c5" not in str(sagemaker.list_endpoints()["Endpoints"]))
    configs, models = sagemaker.list_endpoint_configs(), sagemaker.list_models()
    assert "probe-ml-c5" not in str(configs["EndpointConfigs"]) + str(models["Models"])


def test_a_probe_of_a_gpu_ends_before_an_endpoint_where_the_account_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_probe, "WAIT_S", 0.2)
    with pytest.raises(Unavailable, match="has an NVIDIA GPU and this local account serves on the CPU"):
        main(["preflight", "--probe", "ml.g4dn.xlarge", "--role-arn", ROLE])
