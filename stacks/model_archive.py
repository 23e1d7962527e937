"""A built `model.tar.gz` as an asset named by its sha256. `s3_assets.Asset` would cut the name to `.gz`."""

from pathlib import Path

from aws_cdk import AssetStaging, Aws, FileAssetPackaging, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from stacks.grants import acknowledge_actions, allow, arn_of
from workloads import UsageError, file_sha256


class ModelArchive(Construct):
    """`url` is the archive's s3:// URL. `sha256` and `size_bytes` are those of `file`."""

    def __init__(self, scope: Construct, id: str, *, file: Path, sha256: str | None = None) -> None:
        super().__init__(scope, id)
        if not file.is_file():
            raise UsageError(f"{self.node.path}: file: got '{file}', which is not a file. Build the model first.")
        self.sha256, self.size_bytes = sha256 or file_sha256(file), file.stat().st_size
        stack = Stack.of(self)
        staged = AssetStaging(self, "Staged", source_path=str(file.resolve()))
        location = stack.synthesizer.add_file_asset(
            file_name=staged.relative_staged_path(stack),
            packaging=FileAssetPackaging.FILE,
            # The key is this plus the file's last extension: <sha256>.tar.gz.
            source_hash=f"{self.sha256}.tar",
            display_name=f"{stack.stack_name} {file.name}",
        )
        self.url = location.s3_object_url
        self._key = location.object_key
        self._bucket = s3.Bucket.from_bucket_name(self, "Bucket", location.bucket_name)

    def grant_read(self, role: iam.Role) -> None:
        """Lets the role read only this archive.

        The policy is named by the archive. During an update instances can read the old and the new one.
        """
        actions = ["s3:GetObject*", "s3:GetBucket*", "s3:List*"]
        resources = [self._bucket.bucket_arn, self._bucket.arn_for_objects(self._key)]
        statement = iam.PolicyStatement(actions=actions, resources=resources)
        iam.Policy(role, f"Read{self.sha256[:8]}", statements=[statement], roles=[role])
        self._grant_key(role)
        acknowledge_actions(role, actions, "CDK's wording of read access.")

    def _grant_key(self, role: iam.Role) -> None:
        """Lets the role decrypt objects of this bucket with the unknown key that `cdk bootstrap` may have."""
        bucket = self._bucket.bucket_arn
        conditions: dict[str, dict[str, object]] = {
            "StringEquals": {"kms:ViaService": f"s3.{Aws.REGION}.{Aws.URL_SUFFIX}"},
            "StringLike": {"kms:EncryptionContext:aws:s3:arn": [bucket, f"{bucket}/*"]},
        }
        reason = "Whichever key cdk bootstrap was given; the conditions name its bucket."
        allow(role, ["kms:Decrypt"], [arn_of(self, "kms", "key")], reason, conditions)
