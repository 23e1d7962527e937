"""An endpoint on Inferentia in the rehearsal's account: the real Neuron server over the stand-in compiler's graph."""

import io
import json
import tarfile
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from containers.encoder.settings import Settings
from inference_recommender import kserve
from inference_recommender.client.servers import BINARY
from local_aws.process.local_account import LocalAccount
from local_aws.sagemaker.model_host import ModelHost
from scripts.rehearsal.account import neuron_stand_in
from tests.containers.neuron.neuron_server import SERVING, compile_neuron, document
from tests.local_aws.conftest import wait_until
from tests.scripts.rehearsal.conftest import client
from tests.scripts.rehearsal.roles import make_role, push_image

BUCKET, NAME = "models", "on-inf1"


def archive(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for file in sorted(folder.iterdir()):
            packed.add(file, file.name)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        folder = compile_neuron(tmp_path_factory.mktemp("compiled") / "model", patch)
    (folder / "server.json").write_text(SERVING.to_json())
    return folder


@pytest.fixture(scope="module")
def account(model: Path, rehearsing: LocalAccount) -> LocalAccount:
    s3, sagemaker = client(rehearsing, "s3"), client(rehearsing, "sagemaker")
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="model.tar.gz", Body=archive(model))
    container = {"Image": push_image(rehearsing, "neuron", "1"), "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz"}
    role = make_role(rehearsing, NAME, "sagemaker.amazonaws.com", "s3:GetObject", "ecr:*", "logs:*")
    sagemaker.create_model(ModelName=NAME, ExecutionRoleArn=role, PrimaryContainer=container)
    variant = {"VariantName": "AllTraffic", "ModelName": NAME, "InstanceType": "ml.inf1.xlarge"}
    sagemaker.create_endpoint_config(
        EndpointConfigName=NAME, ProductionVariants=[{**variant, "InitialInstanceCount": 1}]
    )
    sagemaker.create_endpoint(EndpointName=NAME, EndpointConfigName=NAME)
    wait_until(lambda: sagemaker.describe_endpoint(EndpointName=NAME)["EndpointStatus"] != "Creating")
    return rehearsing


@pytest.mark.slow
@pytest.mark.integration
class TestEndpoint:
    def test_it_is_in_service(self, account: LocalAccount) -> None:
        described = client(account, "sagemaker").describe_endpoint(EndpointName=NAME)
        assert (described["EndpointStatus"], described.get("FailureReason")) == ("InService", None)
        assert "variant AllTraffic is answered by Neuron (process" in account.log_file.read_text()

    def test_json_is_answered_by_the_graph(self, account: LocalAccount, model: Path) -> None:
        answer = client(account, "sagemaker-runtime").invoke_endpoint(
            EndpointName=NAME, ContentType="application/json", Body=document("red shoes", "blue socks")
        )
        assert answer["ContentType"] == "application/json"
        outputs = {each["name"]: each["data"] for each in json.loads(answer["Body"].read())["outputs"]}
        labels = Settings.load(model / "settings.json").labels
        assert len(outputs["LABEL"]) == 2
        assert set(outputs["LABEL"]) <= set(labels)

    def test_the_binary_form_is_answered_in_it(self, account: LocalAccount) -> None:
        """SageMaker passes the Content-Type on, and nothing else of what tells the two parts apart."""
        sent = kserve.encode({"TEXT": [["red shoes"]]}, ["LABEL"])
        answer = client(account, "sagemaker-runtime").invoke_endpoint(
            EndpointName=NAME, ContentType=f"{BINARY}{sent.header_size}", Body=sent.content
        )
        size = answer["ContentType"].removeprefix(BINARY)
        assert kserve.decode(kserve.Body.received(answer["Body"].read(), size), ["LABEL"])["LABEL"].shape == (1, 1)

    def test_a_request_that_the_server_refuses_is_a_model_error_in_its_words(self, account: LocalAccount) -> None:
        with pytest.raises(ClientError) as refused:
            client(account, "sagemaker-runtime").invoke_endpoint(
                EndpointName=NAME, ContentType="application/json", Body=b"{}"
            )
        assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 424
        assert "Received client error (400) from primary" in str(refused.value)

    def test_an_image_that_was_never_pushed_is_refused(self, account: LocalAccount) -> None:
        image = f"123456789012.dkr.ecr.us-east-1.amazonaws.com/neuron@sha256:{'d' * 64}"
        container = {"Image": image, "ModelDataUrl": f"s3://{BUCKET}/model.tar.gz"}
        with pytest.raises(ClientError) as refused:
            client(account, "sagemaker").create_model(
                ModelName="never-pushed",
                ExecutionRoleArn="arn:aws:iam::123456789012:role/any",
                PrimaryContainer=container,
            )
        assert refused.value.response["Error"]["Message"] == f"Requested image {image} not found."


def test_only_the_rehearsals_account_serves_inferentia_and_what_it_measures_says_so(tmp_path: Path) -> None:
    plain = ModelHost(account_id="123456789012", state=tmp_path, toolchain=tmp_path)
    stand_in = neuron_stand_in(tmp_path / "packages")
    rehearsing = ModelHost(account_id="123456789012", state=tmp_path, toolchain=tmp_path, neuron=stand_in)
    refused = plain.refusal("ml.inf1.xlarge") or ""
    assert refused.startswith("ml.inf1.xlarge has an AWS Inferentia chip and this local account serves on the CPU")
    assert rehearsing.refusal("ml.inf1.xlarge") is None
    assert rehearsing.refusal("ml.inf2.xlarge") is None
    assert rehearsing.measures_on("ml.inf1.xlarge").endswith(", a stand-in for Inferentia")
    assert not rehearsing.measures_on("ml.c5.xlarge").endswith("Inferentia")
    assert rehearsing.refusal("ml.trn1.2xlarge") is not None
