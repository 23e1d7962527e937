"""The roles of a measurement may do what it needs, and more only by an option of the workload."""

from typing import Any

import pytest

from tests.stacks.endpoint.test_endpoint_stack import actions_of, as_list, statements_of
from tests.stacks.miniature import Synthesis, make_repository
from tests.stacks.templates import filled

KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


@pytest.fixture(scope="module")
def with_options(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    repository = make_repository(tmp_path_factory.mktemp("keyed"))
    text = repository.workload_file.read_text("utf-8")
    options = f'[recommender]\nkms_key_arn = "{KEY}"\nmanaged_policy = true\n'
    repository.workload_file.write_text(f"{text}\n{options}", "utf-8")
    return repository.synthesise()


def _on(synthesis: Synthesis, owner: str, action: str) -> list[str]:
    """Returns the ARNs on which the role of `owner` may do `action`."""
    return [
        filled(arn)
        for statement in statements_of(synthesis, owner)
        if action in as_list(statement["Action"])
        for arn in as_list(statement["Resource"])
    ]


def test_a_job_may_tag_what_it_may_create(unmeasured: Synthesis) -> None:
    """Its request has tags, and so has what it creates."""
    created = {
        arn
        for noun in ("Endpoint", "EndpointConfig", "Model")
        for arn in _on(unmeasured, "Recommender", f"sagemaker:Create{noun}")
    }
    for action in ("sagemaker:AddTags", "sagemaker:ListTags"):
        tagged = set(_on(unmeasured, "Recommender", action))
        assert created < tagged
        (job,) = tagged - created
        assert job.endswith(":inference-recommendations-job/spellcheck-*")


@pytest.mark.parametrize("owner", ["Recommender", "Generator"])
def test_instances_may_join_the_subnets_that_a_run_names(unmeasured: Synthesis, owner: str) -> None:
    """The actions are those that AWS documents for SageMaker's resources in a VPC."""
    touched = {arn.rpartition(":")[2] for arn in _on(unmeasured, owner, "ec2:CreateNetworkInterface")}
    assert touched == {"network-interface/*", "subnet/*", "security-group/*"}
    assert {action for action in actions_of(unmeasured, owner) if action.startswith("ec2:")} == {
        "ec2:CreateNetworkInterface",
        "ec2:CreateNetworkInterfacePermission",
        "ec2:DeleteNetworkInterface",
        "ec2:DeleteNetworkInterfacePermission",
        "ec2:DescribeNetworkInterfaces",
        "ec2:DescribeVpcs",
        "ec2:DescribeDhcpOptions",
        "ec2:DescribeSubnets",
        "ec2:DescribeSecurityGroups",
    }


def test_generators_fetch_their_code_ask_and_write_what_was_answered_and_no_more(unmeasured: Synthesis) -> None:
    folder = "arn:aws:s3:::sagemaker-us-east-1-123456789012/inference-recommender/spellcheck/load-test/*"
    assert folder in _on(unmeasured, "Generator", "s3:GetObject*")
    assert _on(unmeasured, "Generator", "s3:PutObject") == [folder]
    pulled = [arn.rpartition(":")[2] for arn in _on(unmeasured, "Generator", "ecr:BatchGetImage")]
    assert pulled == ["repository/pytorch-training"]
    asked = [arn.rpartition("/")[2] for arn in _on(unmeasured, "Generator", "sagemaker:InvokeEndpoint")]
    assert len(asked) == 2
    assert "spellcheck-*" in asked
    written = {arn.partition("log-group:")[2] for arn in _on(unmeasured, "Generator", "logs:PutLogEvents")}
    assert written == {"/aws/sagemaker/ProcessingJobs*"}
    assert not {action for action in actions_of(unmeasured, "Generator") if action.startswith(("iam:", "kms:"))}


@pytest.mark.parametrize("owner", ["Recommender", "Generator"])
def test_a_key_that_the_workload_names_may_encrypt_volumes_and_output(with_options: Synthesis, owner: str) -> None:
    """Without kms:CreateGrant a job with VolumeKmsKeyId fails after it has begun."""
    (granting,) = [item for item in statements_of(with_options, owner) if item["Action"] == "kms:CreateGrant"]
    assert granting["Resource"] == KEY
    assert granting["Condition"] == {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    for action in ("kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey", "kms:GenerateDataKeyWithoutPlaintext"):
        assert [arn for arn in _on(with_options, owner, action) if not arn.endswith("*")] == [KEY]


def test_without_a_key_no_role_may_use_one_but_that_of_the_bucket_of_archives(unmeasured: Synthesis) -> None:
    for owner in ("Recommender", "Generator"):
        for statement in statements_of(unmeasured, owner):
            if "kms:" in str(statement["Action"]):
                assert statement["Action"] == "kms:Decrypt"
                assert "kms:EncryptionContext:aws:s3:arn" in statement["Condition"]["StringLike"]


def test_the_managed_policy_is_attached_where_it_is_asked_for(with_options: Synthesis) -> None:
    attached = {
        name: policies
        for name, role in with_options.of_type("AWS::IAM::Role").items()
        if (policies := role["Properties"].get("ManagedPolicyArns"))
    }
    ((name, policies),) = attached.items()
    assert name.startswith("Recommender")
    assert _joined(policies[0]).endswith(":iam::aws:policy/AmazonSageMakerFullAccess")


def _joined(value: Any) -> str:
    return "".join(part for part in value["Fn::Join"][1] if isinstance(part, str))
