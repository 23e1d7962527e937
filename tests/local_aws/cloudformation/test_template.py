"""A template is data: it runs nothing, and a mistake in one is a ValidationError that leaves no stack behind."""

import json
from pathlib import Path
from typing import Any

import pytest
from moto.cloudformation.exceptions import ValidationError

from local_aws.cloudformation.template import MAX_DEPTH, parse
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import BUCKET, Clients, Stacks, refused

TOPIC = {"Type": "AWS::SNS::Topic"}
PYTHON = {
    "apply": '!!python/object/apply:os.system ["touch {file}"]',
    "new": "!!python/object/new:os.system ['touch {file}']",
    "name": "!!python/name:os.system",
    "module": "!!python/module:os",
    "tuple": "!!python/tuple [1, 2]",
}
OPERATIONS: dict[str, dict[str, Any]] = {
    "create_stack": {"StackName": "hostile"},
    "update_stack": {"StackName": "harmless"},
    "create_change_set": {"StackName": "hostile", "ChangeSetName": "c", "ChangeSetType": "CREATE"},
    "get_template_summary": {},
    "validate_template": {},
}


@pytest.fixture
def harmless(stacks: Stacks) -> Any:
    stacks.create("harmless", {"Resources": {"Topic": TOPIC}})
    return stacks.cloudformation


@pytest.mark.integration
@pytest.mark.parametrize("from_s3", [False, True], ids=["body", "s3"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_python_in_a_template_is_a_validation_error_and_does_not_run(
    operation: str, from_s3: bool, harmless: Any, account: LocalAccount, client: Clients, tmp_path: Path
) -> None:
    for name, tag in PYTHON.items():
        text = f"Resources:\n  Topic:\n    Type: AWS::SNS::Topic\n  B: {tag.format(file=tmp_path / name)}\n"
        source = {"TemplateBody": text}
        if from_s3:
            client("s3").put_object(Bucket=BUCKET, Key="hostile.yaml", Body=text.encode())
            source = {"TemplateURL": f"{account.endpoint_url}/{BUCKET}/hostile.yaml"}
        status, code, message = refused(getattr(harmless, operation), **OPERATIONS[operation], **source)
        assert (status, code) == (400, "ValidationError"), message
        assert message.startswith(
            "Template format error: could not determine a constructor for the tag 'tag:yaml.org,2002:python/"
        )
    assert list(tmp_path.iterdir()) == []
    assert [stack["StackName"] for stack in harmless.describe_stacks()["Stacks"]] == ["harmless"]


def test_short_forms_are_the_functions_they_stand_for() -> None:
    text = """
        AWSTemplateFormatVersion: 2010-09-09
        Conditions:
          Big: !And [!Equals [a, a], !Condition Other]
          Other: !Not [!Equals [a, b]]
        Resources:
          T:
            Type: AWS::SNS::Topic
            Properties:
              A: !Ref Other
              B: !GetAtt Other.Nested.Arn
              C: !GetAtt [Other, Arn]
              D: !Join ['-', [!Ref A, !Sub '${B}-x']]
              E: !Sub ['${X}', {X: !Ref A}]
              F: !If [Big, !Select [0, !Split [',', 'a,b']], !Ref AWS::NoValue]
              G: !Transform {Name: AWS::Include, Parameters: {Location: l}}
              Version: 2012-10-17
    """
    template = parse(text)
    properties = template["Resources"]["T"]["Properties"]
    assert template["AWSTemplateFormatVersion"] == "2010-09-09"
    assert template["Conditions"]["Big"] == {"Fn::And": [{"Fn::Equals": ["a", "a"]}, {"Condition": "Other"}]}
    assert properties == {
        "A": {"Ref": "Other"},
        "B": {"Fn::GetAtt": ["Other", "Nested.Arn"]},
        "C": {"Fn::GetAtt": ["Other", "Arn"]},
        "D": {"Fn::Join": ["-", [{"Ref": "A"}, {"Fn::Sub": "${B}-x"}]]},
        "E": {"Fn::Sub": ["${X}", {"X": {"Ref": "A"}}]},
        "F": {"Fn::If": ["Big", {"Fn::Select": [0, {"Fn::Split": [",", "a,b"]}]}, {"Ref": "AWS::NoValue"}]},
        "G": {"Fn::Transform": {"Name": "AWS::Include", "Parameters": {"Location": "l"}}},
        "Version": "2012-10-17",
    }


DEEP = "x"
for _ in range(2000):
    DEEP = f"[{DEEP}]"
MISTAKES = [
    ("a: [", "Template format error: expected the node content, but found '<stream end>' (line 1, column 5)."),
    ("5", "Template format error: unsupported structure."),
    ("Resources: {}", "Template format error: At least one Resources member must be defined."),
    ("Resources: []", "Template format error: [/Resources] must be an object."),
    ("Resources: {T: x}", "Template format error: [/Resources/T] must be an object."),
    ("Resources: {T: {}}", "Template format error: [/Resources/T] must contain a Type member."),
    ("Outputs: null", "Template format error: [/Outputs] must be an object."),
    ("a: &a {}\nb: *a", "Template error: YAML aliases are not allowed in CloudFormation templates"),
    ("a: {[b]: c}", "Template format error: found unhashable key (line 1, column 5)."),
    (f'{{"a": {DEEP.replace("x", "1")}}}', f"Template format error: the template has more than {MAX_DEPTH} levels."),
    (f"a: {DEEP}", f"Template format error: the template has more than {MAX_DEPTH} levels."),
    ("", "Either Template URL or Template Body must be specified."),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_mistake_in_a_template_is_named(text: str, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        parse(text)
    assert caught.value.message == message


@pytest.mark.integration
@pytest.mark.parametrize("text", [f'{{"Resources": {{"T": {DEEP.replace("x", "1")}}}}}', "Resources: {T: x}", "a: ["])
def test_a_template_that_cannot_be_read_leaves_no_stack_behind(text: str, harmless: Any) -> None:
    for _ in range(2):  # a repeat does not get AlreadyExists
        assert refused(harmless.create_stack, StackName="unread", TemplateBody=text)[:2] == (400, "ValidationError")
    assert [stack["StackName"] for stack in harmless.describe_stacks()["Stacks"]] == ["harmless"]


OUTPUTS = [
    ({"Fn::Select": ["0", {"Fn::Split": ["", "a,b"]}]}, "The output Bad cannot be evaluated: empty separator"),
    ({"Fn::FindInMap": ["Map", "x", "y"]}, "The output Bad cannot be evaluated: there is no 'x'"),
]


@pytest.mark.integration
@pytest.mark.parametrize(("value", "reason"), OUTPUTS)
def test_an_output_that_cannot_be_evaluated_rolls_its_stack_back_and_no_other(
    value: dict[str, Any], reason: str, stacks: Stacks, harmless: Any, client: Clients
) -> None:
    body = {
        "Mappings": {"Map": {"a": {"y": "z"}}},
        "Resources": {"Topic": {**TOPIC, "Properties": {"TopicName": "made-and-unmade"}}},
        "Outputs": {"Bad": {"Value": value}},
    }
    stack = stacks.create("outputs", body)
    assert (stack["StackStatus"], stack["StackStatusReason"]) == ("ROLLBACK_COMPLETE", reason)
    assert not [each for each in client("sns").list_topics()["Topics"] if "made-and-unmade" in each["TopicArn"]]
    harmless.update_stack(StackName="harmless", TemplateBody=json.dumps({**body, "Outputs": {"Bad": {"Value": value}}}))
    stack = stacks.settle("harmless")
    assert (stack["StackStatus"], stack["StackStatusReason"]) == ("UPDATE_ROLLBACK_COMPLETE", reason)
    assert len(harmless.describe_stacks()["Stacks"]) == 2


@pytest.mark.integration
@pytest.mark.parametrize("url", ["{account}/models/none.yaml", "https://models.s3.amazonaws.com/none.yaml", "x"])
def test_a_template_that_is_not_in_s3_is_a_validation_error(url: str, account: LocalAccount, harmless: Any) -> None:
    url = url.format(account=account.endpoint_url)
    expected = (400, "ValidationError", f"S3 error: there is no template at {url}")
    assert refused(harmless.get_template_summary, TemplateURL=url) == expected
