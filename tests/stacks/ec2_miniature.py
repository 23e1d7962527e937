"""A repository in miniature of a workload on EC2 instances: its real workload.toml, an artifact as a build leaves it.

Nothing here needs a build, an AWS account or a network; Inferentia's artifacts need no compiler of it.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import App, Environment

from app import add_stacks
from stacks.context import Options
from tests.stacks.miniature import (
    Repository,
    Synthesis,
    candidate,
    cdk_context,
    toml,
    write_artifact,
    write_recommendation,
)
from workloads import ROOT, Autoscaling, Candidate

IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/ours:1"


@dataclass(frozen=True)
class Ec2Repository:
    """`of` is the repository; here are ways to change what lies in it."""

    of: Repository

    @property
    def file(self) -> Path:
        return self.of.workload_file

    def host(self, **keys: object) -> None:
        """Keys of [hosting], the last table of the file, beside those that it has."""
        before, _, table = self.file.read_text("utf-8").partition("[hosting]")
        kept = [line for line in table.splitlines() if line.strip() and line.split(" ")[0] not in keys]
        added = [f"{key} = {toml(value)}" for key, value in keys.items()]
        self.file.write_text("\n".join([before + "[hosting]", *kept, *added, ""]), "utf-8")
        if "target" in keys:
            write_artifact(self.of, str(keys["target"]))

    def instance_types(self, target: str, *types: str) -> None:
        pattern = rf"(?ms)(^\[targets\.{target}\].*?^instance_types = ).*?$"
        text = re.sub(pattern, rf"\g<1>{toml(list(types))}", self.file.read_text("utf-8"), count=1)
        self.file.write_text(text, "utf-8")

    def recommend(self, recommended: Candidate | None = None, **keys: object) -> None:
        write_recommendation(self.of, recommended or service_candidate(), **keys)

    def app(self, environment: Environment | None = None, options: Options | None = None) -> App:
        app = App(outdir=str(self.of.root / "cdk.out"), context=cdk_context())
        add_stacks(app, self.of.root, environment, options)
        return app

    def synthesise(self, environment: Environment | None = None, options: Options | None = None) -> Synthesis:
        return self.of.synthesise(environment, options)


def make_ec2_repository(root: Path, workload: str, target: str = "inf1") -> Ec2Repository:
    """Hosted as its workload.toml says, but on `target`, which is built."""
    made = Ec2Repository(Repository(root, workload))
    made.file.parent.mkdir(parents=True)
    shutil.copy(ROOT / "workloads" / workload / "workload.toml", made.file)
    made.host(target=target)
    return made


def service_candidate(**keys: object) -> Candidate:
    scaling = Autoscaling(min_capacity=3, max_capacity=12, target_invocations_per_instance=98_765.4)
    measured = {"max_invocations_per_minute": 200_000.0, "instance_count": 6, "autoscaling": scaling}
    return candidate(**{"instance_type": "inf1.6xlarge", "environment": {}, **measured, **keys})
