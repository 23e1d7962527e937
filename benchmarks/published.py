"""Runs a workload's published experiment on a local account with real Tritons. The run folder has its page.

    python benchmarks/published.py text_classification cpu-twin

Builds the variants of [published.NAME] and runs `experiment WORKLOAD --published NAME`. Exits with its code.
The last line is its result as JSON.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from aws_api.session import AwsSession
from local_aws.process.local_account import LocalAccount
from workloads import ROOT, WorkloadFolder, artifact_file, load_workload

ACCOUNT = "123456789012"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:local"
"""An account on this machine starts its own Triton, whatever the image is called."""
MAY = ("s3:*", "sagemaker:*", "ecr:*", "logs:*", "cloudwatch:*", "iam:PassRole")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("name", help="a [published.NAME] of its workload.toml whose variants this machine can serve")
    options = parser.parse_args()
    folder = load_workload(options.workload).as_published(options.name)
    build(folder)
    with tempfile.TemporaryDirectory() as state, LocalAccount.start(state=Path(state)) as account:
        return measure(folder, account)


def build(folder: WorkloadFolder) -> None:
    """Builds the variants that are not built yet; those of one target are compiled once."""
    assert folder.published_name
    workload = folder.workload
    for variant in workload.published[folder.published_name].variants:
        if not artifact_file(folder.builds(ROOT), workload.name, variant).exists():
            command = ["model_build", "build", workload.name, "--target", variant, "--published", folder.published_name]
            subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True, stdout=sys.stderr)


def measure(folder: WorkloadFolder, account: LocalAccount) -> int:
    """Runs the experiment, which prints its result and names its folder. Returns its exit code."""
    command = ["inference_recommender", "experiment", folder.workload.name, "--published", str(folder.published_name)]
    settings = (f"recommender.role_arn={make_role(account)}", f"recommender.images.all={IMAGE}")
    command += [word for setting in settings for word in ("--set", setting)] + ["--json"]
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode


def make_role(account: LocalAccount) -> str:
    """Points this process at the account, and makes a role there that its jobs may work under. Returns its ARN."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(account.environment)
    iam = AwsSession().client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    made = iam.create_role(RoleName="Published", AssumeRolePolicyDocument=_policy(trust))["Role"]
    allowed = _policy({"Effect": "Allow", "Action": list(MAY), "Resource": "*"})
    iam.put_role_policy(RoleName="Published", PolicyName="Published", PolicyDocument=allowed)
    return str(made["Arn"])


def _policy(statement: dict[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


if __name__ == "__main__":
    sys.exit(main())
