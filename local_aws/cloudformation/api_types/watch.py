"""What wakes people: composite alarms, topics and who listens to them."""

from typing import Any

from local_aws.cloudformation.api_type import Also, ApiType, Known


def _attribute(name: str) -> Also:
    def request(value: Any, known: Known) -> Known:
        return {**known, "AttributeName": name, "AttributeValue": value}

    return Also(name, "SetTopicAttributes", request)


WATCH = (
    ApiType(
        name="AWS::CloudWatch::CompositeAlarm",
        service="cloudwatch",
        create="PutCompositeAlarm",
        overwrites=True,
        delete="DeleteAlarms",
        ref="request.AlarmName",
        attributes={"Arn": "join('', ['arn:aws:cloudwatch:', region, ':', account, ':alarm:', request.AlarmName])"},
        keys={"AlarmNames": "[request.AlarmName]"},
        named_by="AlarmName",
    ),
    ApiType(
        name="AWS::SNS::Topic",
        service="sns",
        create="CreateTopic",
        delete="DeleteTopic",
        ref="answer.TopicArn",
        attributes={"TopicArn": "answer.TopicArn", "TopicName": "request.Name"},
        keys={"TopicArn": "answer.TopicArn"},
        named_by="TopicName",
        renames={"TopicName": "Name"},
        also=tuple(map(_attribute, ("DisplayName", "KmsMasterKeyId", "SignatureVersion", "TracingConfig"))),
    ),
    ApiType(
        name="AWS::SNS::Subscription",
        service="sns",
        create="Subscribe",
        delete="Unsubscribe",
        ref="answer.SubscriptionArn",
        keys={"SubscriptionArn": "answer.SubscriptionArn"},
    ),
)
