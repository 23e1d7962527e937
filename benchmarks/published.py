"""Runs a workload's published experiment on a local account with real Tritons. The run folder has its page.

    python benchmarks/published.py text_classification cpu-twin
    python benchmarks/published.py text_classification gpu-twin     with an NVIDIA GPU; lists the GPU's utilisation

Builds the variants of [published.NAME] and runs `experiment WORKLOAD --published NAME`. Exits with its code, or with 3
before any work if this machine lacks what the experiment needs. Prints its result as one JSON document.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from aws_api.session import AwsSession
from local_aws import machine, nvml
from local_aws.process.local_account import LocalAccount
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN
from workloads import ROOT, Unavailable, artifact_file, load_workload
from workloads.instances import hardware
from workloads.program import exit_code

ACCOUNT = "123456789012"
IMAGE = f"{ACCOUNT}.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:local"
"""An account on this machine starts its own Triton, whatever the image is called."""
INSTALL_NVML = "bash scripts/install_locked.sh .venv/bin/python requirements/gpu.txt"
MAY = ("s3:*", "sagemaker:*", "ecr:*", "logs:*", "cloudwatch:*", "iam:PassRole")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("name", help="a [published.NAME] of its workload.toml whose variants this machine can serve")
    options = parser.parse_args()
    check_machine(options.workload, options.name)
    build(options.workload, options.name)
    with tempfile.TemporaryDirectory() as state, LocalAccount.start(state=Path(state), pace="quick") as account:
        return measure(options.workload, options.name, account)


def check_machine(workload: str, name: str) -> None:
    """Raises `Unavailable` for an experiment on GPUs if a piece that it needs is missing here."""
    types = load_workload(workload).as_published(name).workload.published[name].instance_types
    if "GPU" not in map(hardware, types):
        return
    pieces = {
        "a GPU that nvidia-smi lists": bool(machine.gpus()),
        "PyTorch with CUDA in .venv-triton (`make triton` where pip finds PyPI's torch)": _torch_finds_gpu(),
        f"nvidia-ml-py (`{INSTALL_NVML}`)": nvml.library() is not None,
    }
    if missing := [piece for piece, present in pieces.items() if not present]:
        raise Unavailable(
            f"published.{name} runs on an NVIDIA GPU of this machine, which lacks {', '.join(missing)}. Install "
            "these, or run it on a machine with a GPU."
        )


def _torch_finds_gpu() -> bool:
    python, program = DEFAULT_TOOLCHAIN / "bin" / "python", "import sys, torch; sys.exit(not torch.cuda.is_available())"
    return python.exists() and subprocess.run([python, "-c", program], capture_output=True, check=False).returncode == 0


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
    sys.exit(exit_code(main))
