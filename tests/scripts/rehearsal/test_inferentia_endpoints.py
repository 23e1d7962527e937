"""Which local account serves Inferentia, and which images exist. test_inferentia_chain.py has endpoints and jobs."""

from dataclasses import replace
from pathlib import Path

import pytest

from local_aws.account_settings import AccountSettings
from local_aws.process.local_account import LocalAccount
from local_aws.sagemaker.model_host import ModelHost
from scripts.rehearsal.account import neuron_stand_in
from tests.local_aws.conftest import ROLE, refused
from tests.scripts.rehearsal.conftest import client


@pytest.mark.slow
@pytest.mark.integration
def test_an_image_that_was_never_pushed_is_rejected(rehearsing: LocalAccount) -> None:
    image = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron@sha256:{'d' * 64}"
    container = {"Image": image, "ModelDataUrl": "s3://models/model.tar.gz"}
    create = client(rehearsing, "sagemaker").create_model
    about = {"ModelName": "never-pushed", "ExecutionRoleArn": ROLE}
    assert refused(create, **about, PrimaryContainer=container)[2] == f"Requested image {image} not found."


def test_only_the_rehearsals_account_serves_inferentia(tmp_path: Path) -> None:
    settings = AccountSettings(state=tmp_path, region="us-east-1", toolchain=tmp_path)
    plain = ModelHost(settings)
    rehearsing = ModelHost(replace(settings, neuron=neuron_stand_in(tmp_path / "packages")))
    refusal = plain.refusal("ml.inf1.xlarge") or ""
    assert refusal.startswith("ml.inf1.xlarge has an AWS Inferentia chip and this local account serves on the CPU")
    assert rehearsing.refusal("ml.inf1.xlarge") is None
    assert rehearsing.refusal("ml.inf2.xlarge") is None
    assert rehearsing.measures_on("ml.inf1.xlarge").endswith(", a stand-in for Inferentia")
    assert not rehearsing.measures_on("ml.c5.xlarge").endswith("Inferentia")
    assert rehearsing.refusal("ml.trn1.2xlarge") is not None
