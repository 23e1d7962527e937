"""Types that keep or tell something: buckets, keys and log groups; composite alarms, topics and their subscriptions."""

import re
from typing import Any

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from local_aws.cloudformation.api_type import Also, ApiType, Known, Properties


def _encryption(value: Any, known: Known) -> Known:
    """Renames ServerSideEncryptionByDefault to ApplyServerSideEncryptionByDefault, its name in the API."""
    rules = [
        {key.replace("ServerSide", "ApplyServerSide"): each for key, each in rule.items()}
        for rule in value["ServerSideEncryptionConfiguration"]
    ]
    return {**known, "ServerSideEncryptionConfiguration": {"Rules": rules}}


def _lifecycle(value: Any, known: Known) -> Known:
    return {**known, "LifecycleConfiguration": {"Rules": [_lifecycle_rule(rule) for rule in value["Rules"]]}}


def _lifecycle_rule(rule: dict[str, Any]) -> dict[str, Any]:
    """Turns the template's flat days into the API's nested ones."""
    kept = {"ID": rule.get("Id"), "Status": rule["Status"], "Filter": {"Prefix": rule.get("Prefix", "")}}
    if "ExpirationInDays" in rule:
        kept["Expiration"] = {"Days": rule["ExpirationInDays"]}
    if "NoncurrentVersionExpiration" in rule:
        kept["NoncurrentVersionExpiration"] = rule["NoncurrentVersionExpiration"]
    if "AbortIncompleteMultipartUpload" in rule:
        kept["AbortIncompleteMultipartUpload"] = rule["AbortIncompleteMultipartUpload"]
    return {key: value for key, value in kept.items() if value is not None}


def _logging(value: Any, known: Known) -> Known:
    named = {"DestinationBucketName": "TargetBucket", "LogFilePrefix": "TargetPrefix"}
    return {**known, "TargetPrefix": ""} | {named[key]: each for key, each in value.items() if key in named}


def _log_to(request: Known) -> None:
    """Does what PutBucketLogging does, without moto's check that the target already lets the logging service write.

    S3 makes no such check, and a template's bucket policy comes after both buckets.
    """
    bucket = request.pop("Bucket")
    s3_backends[DEFAULT_ACCOUNT_ID]["aws"].get_bucket(bucket).logging = request


def _bucket(properties: Properties, region: str) -> Properties:
    """Adds the region, and spells the ACL as the API does: LogDeliveryWrite becomes log-delivery-write."""
    made = dict(properties)
    if region != "us-east-1":
        made["CreateBucketConfiguration"] = {"LocationConstraint": region}
    if access := made.pop("AccessControl", None):
        made["ACL"] = re.sub("(?<!^)(?=[A-Z])", "-", access).lower()
    return made


def _without_window(properties: Properties, _region: str) -> Properties:
    """Leaves out the waiting period, which belongs to the key's deletion."""
    return {key: value for key, value in properties.items() if key != "PendingWindowInDays"}


def _if_true(value: Any, known: Known) -> Known | None:
    return known if value in (True, "true") else None


def _topic_attribute(name: str) -> Also:
    def request(value: Any, known: Known) -> Known:
        return {**known, "AttributeName": name, "AttributeValue": value}

    return Also(name, "SetTopicAttributes", request)


STORAGE = (
    ApiType(
        name="AWS::S3::Bucket",
        service="s3",
        create="CreateBucket",
        delete="DeleteBucket",
        ref="request.Bucket",
        attributes={
            "Arn": "join('', ['arn:aws:s3:::', request.Bucket])",
            "DomainName": "join('', [request.Bucket, '.s3.amazonaws.com'])",
            "RegionalDomainName": "join('', [request.Bucket, '.s3.', region, '.amazonaws.com'])",
        },
        keys={"Bucket": "request.Bucket"},
        named_by="BucketName",
        renames={"BucketName": "Bucket"},
        prepare=_bucket,
        also=(
            Also("BucketEncryption", "PutBucketEncryption", _encryption),
            Also("LifecycleConfiguration", "PutBucketLifecycleConfiguration", _lifecycle),
            Also("LoggingConfiguration", _log_to, _logging),
            Also(
                "OwnershipControls",
                "PutBucketOwnershipControls",
                lambda value, known: {**known, "OwnershipControls": value},
            ),
            Also(
                "PublicAccessBlockConfiguration",
                "PutPublicAccessBlock",
                lambda value, known: {**known, "PublicAccessBlockConfiguration": value},
            ),
            Also("Tags", "PutBucketTagging", lambda value, known: {**known, "Tagging": {"TagSet": value}}),
            Also(
                "VersioningConfiguration",
                "PutBucketVersioning",
                lambda value, known: {**known, "VersioningConfiguration": value},
            ),
        ),
    ),
    ApiType(
        name="AWS::KMS::Key",
        service="kms",
        create="CreateKey",
        delete="ScheduleKeyDeletion",
        delete_with={"PendingWindowInDays": 7},
        ref="answer.KeyMetadata.KeyId",
        attributes={"Arn": "answer.KeyMetadata.Arn", "KeyId": "answer.KeyMetadata.KeyId"},
        keys={"KeyId": "answer.KeyMetadata.KeyId"},
        renames={"KeyPolicy": "Policy"},
        prepare=_without_window,
        also=(Also("EnableKeyRotation", "EnableKeyRotation", _if_true),),
    ),
    ApiType(
        name="AWS::Logs::LogGroup",
        service="logs",
        create="CreateLogGroup",
        delete="DeleteLogGroup",
        ref="request.logGroupName",
        attributes={
            "Arn": "join('', ['arn:aws:logs:', region, ':', account, ':log-group:', request.logGroupName, ':*'])"
        },
        keys={"logGroupName": "request.logGroupName"},
        named_by="LogGroupName",
        also=(
            Also(
                "RetentionInDays", "PutRetentionPolicy", lambda value, known: {**known, "retentionInDays": int(value)}
            ),
        ),
    ),
)


def _budget(properties: Properties, _region: str) -> Properties:
    """Adds the account, of which CloudFormation has the stack's, and writes amounts as the API takes them."""
    asked = properties["Budget"]
    limit = {**asked["BudgetLimit"], "Amount": str(asked["BudgetLimit"]["Amount"])}
    return {**properties, "Budget": {**asked, "BudgetLimit": limit}, "AccountId": DEFAULT_ACCOUNT_ID}


WATCH = (
    ApiType(
        name="AWS::Budgets::Budget",
        service="budgets",
        create="CreateBudget",
        delete="DeleteBudget",
        ref="request.Budget.BudgetName",
        keys={"AccountId": "request.AccountId", "BudgetName": "request.Budget.BudgetName"},
        prepare=_budget,
    ),
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
        also=tuple(map(_topic_attribute, ("DisplayName", "KmsMasterKeyId", "SignatureVersion", "TracingConfig"))),
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
