"""Makes roles in the rehearsal's account, as the templates' roles are made there."""

import json
from collections.abc import Mapping

from local_aws.process.local_account import LocalAccount
from tests.scripts.rehearsal.conftest import client


def make_role(account: LocalAccount, name: str, service: str, *actions: str) -> str:
    """Returns the ARN of a role that `service` may assume and that may do `actions` on everything."""
    iam = client(account, "iam")
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": "sts:AssumeRole"}
    allowed = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
    made: str = iam.create_role(RoleName=name, AssumeRolePolicyDocument=_policy(trust))["Role"]["Arn"]
    if actions:
        iam.put_role_policy(RoleName=name, PolicyName=name, PolicyDocument=_policy(allowed))
    return made


def _policy(statement: Mapping[str, object]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def push_image(account: LocalAccount, repository: str, tag: str) -> str:
    """Puts an image of nothing into the account's registry, and returns its address by digest."""
    ecr, digest = client(account, "ecr"), "sha256:" + "c" * 64
    ecr.create_repository(repositoryName=repository)
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": []})
    ecr.put_image(repositoryName=repository, imageTag=tag, imageManifest=manifest, imageDigest=digest)
    (found,) = ecr.describe_repositories(repositoryNames=[repository])["repositories"]
    return f"{found['repositoryUri']}@{digest}"
