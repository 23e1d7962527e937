"""The buckets of a batch: INPUT/<day>/… for rows and OUTPUT/<day>/… for answers. Encrypted, versioned, logged."""

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.buckets_and_logs import private_bucket
from stacks.grants import acknowledge, acknowledge_actions, acknowledge_resources, acknowledge_to_checkov

OLD_VERSIONS = Duration.days(30)
LOGS_KEPT = Duration.days(90)


class BatchStorage(Construct):
    """`input` and `output`. Both outlive the stack, because they hold users' data. Answers expire."""

    def __init__(self, scope: Construct, id: str, *, key: kms.IKey | None, output_days: int) -> None:
        super().__init__(scope, id)
        self.key = key
        # S3 delivers no logs to a bucket with a customer key.
        self._logs = private_bucket(self, "AccessLogs", lifecycle_rules=[s3.LifecycleRule(expiration=LOGS_KEPT)])
        acknowledge(self._logs, "AwsSolutions-S1", "It is where access logs go; logging its own would never end.")
        acknowledge_to_checkov(self._logs, "CKV_AWS_21", "A log has a name of its own and is written once.")
        self.input = self._bucket("Input")
        self.output = self._bucket("Output", Duration.days(output_days))

    def grant_run(self, role: iam.Role) -> None:
        """Lets a shard or the account read rows, write answers and read them again."""
        self.input.grant_read(role)
        self.output.grant_read(role)
        self.output.grant_put(role)
        acknowledge_actions(
            role, ["s3:GetObject*", "s3:GetBucket*", "s3:List*", "s3:Abort*"], "CDK's wording of access."
        )
        if self.key is not None:
            acknowledge_actions(role, ["kms:GenerateDataKey*", "kms:ReEncrypt*"], "CDK's wording of use of a key.")
        objects = [bucket.arn_for_objects("*") for bucket in (self.input, self.output)]
        acknowledge_resources(role, objects, "Each run has a folder of its own, named after its day.")

    def _bucket(self, name: str, expiration: Duration | None = None) -> s3.Bucket:
        return private_bucket(
            self,
            name,
            self.key,
            versioned=True,
            server_access_logs_bucket=self._logs,
            server_access_logs_prefix=f"{name.lower()}/",
            lifecycle_rules=[
                s3.LifecycleRule(
                    expiration=expiration,
                    noncurrent_version_expiration=OLD_VERSIONS,
                    abort_incomplete_multipart_upload_after=Duration.days(7),
                )
            ],
        )
