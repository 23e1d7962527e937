"""Runs a workload's published experiment on a local account with real Tritons. The run folder has its page.

    python benchmarks/published.py text_classification cpu-twin

Builds the variants of [published.NAME] and runs `experiment WORKLOAD --published NAME`. Exits with its code.
Prints its result as one JSON document.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from aws_api.session import AwsSession
from local_aws.process.local_account import LocalAccount
from workloads import ROOT, artifact_file, load_workload

ACCOUNT = "123456789012"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:local"
"""An account on this machine starts its own Triton, whatever the image is called."""
MAY = ("s3:*", "sagemaker:*", "ecr:*", "logs:*", "cloudwatch:*", "iam:PassRole")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("name", help="a [published.NAME] of its workload.toml whose variants this machine can serve")
    options = parser.parse_args()
    build(options.workload, options.name)
    with tempfile.TemporaryDirectory() as state, LocalAccount.start(state=Path(state)) as account:
        return measure(options.workload, options.name, account)


def build(workload: str, name: str) -> None:
    """Builds the variants that are not built yet; those of one target are compiled once."""
    folder = load_workload(workload).as_published(name)
    for variant in folder.workload.published[name].variants:
        if not artifact_file(folder.builds(ROOT), workload, variant).exists():
            command = ["model_build", "build", workload, "--target", variant, "--published", name]
            subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=True, stdout=sys.stderr)


def measure(workload: str, name: str, account: LocalAccount) -> int:
    """Runs the experiment, which prints its result and names its folder. Returns its exit code."""
    command = ["inference_recommender", "experiment", workload, "--published", name, "--json"]
    command += ["--set", f"recommender.role_arn={make_role(account)}", "--set", f"recommender.images.all={IMAGE}"]
    return subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode


def make_role(account: LocalAccount) -> str:
    """Points this process at the account, and makes a role there that its jobs may work under. Returns its ARN."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(account.environment)
    iam = AwsSession().client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "sagemaker.amazonaws.com"}, "Action": "sts:AssumeRole"}
    allowed = {"Effect": "Allow", "Action": list(MAY), "Resource": "*"}
    policy, trusts = (json.dumps({"Version": "2012-10-17", "Statement": [each]}) for each in (allowed, trust))
    role = iam.create_role(RoleName="Published", AssumeRolePolicyDocument=trusts)["Role"]
    iam.put_role_policy(RoleName="Published", PolicyName="Published", PolicyDocument=policy)
    return str(role["Arn"])


if __name__ == "__main__":
    sys.exit(main())
