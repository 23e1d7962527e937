"""The environment in which boto3, the AWS CLI and the CDK CLI talk to the local account."""

from collections.abc import Mapping

# Whose value elsewhere would lead a tool past the account.
UNSET = ("AWS_PROFILE", "AWS_SESSION_TOKEN")


def exports(port: int, region: str) -> dict[str, str]:
    return {
        # localhost, not 127.0.0.1: with an address moto misreads the S3 URL of a template.
        "AWS_ENDPOINT_URL": f"http://localhost:{port}",
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,  # the CDK CLI reads this one
        "AWS_EC2_METADATA_DISABLED": "true",  # no tool may wait for a metadata service
    }


def as_shell(values: Mapping[str, str]) -> str:
    return "\n".join([f"unset {' '.join(UNSET)}", *(f"export {name}={value}" for name, value in values.items())])
