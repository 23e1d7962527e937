"""Runs a release's scripts in a copy of the repository, with short evaluations and images of nothing."""

import json

from tests.repository_copy import RepositoryCopy
from workloads import ModelArtifact
from workloads.own_images import content_of

BUCKET = "releases"
STEP = 4
"""Every fourth example of the evaluations is recorded and compared."""


def shorten_evaluation(copy: RepositoryCopy, workload: str) -> None:
    rows = copy.root / "workloads" / workload / "evaluation.jsonl"
    rows.write_text("".join(rows.read_text("utf-8").splitlines(keepends=True)[::STEP]), "utf-8")


def leave_image(copy: RepositoryCopy, kind: str) -> None:
    """Leaves our image of a kind as build_image.sh does, which needs Docker and the AWS CLI."""
    ecr, digest = copy.client("ecr"), "sha256:" + "c" * 64
    address = ecr.create_repository(repositoryName=kind)["repository"]["repositoryUri"]
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "layers": []})
    ecr.put_image(repositoryName=kind, imageTag=kind, imageManifest=manifest, imageDigest=digest)
    registry, _, repository = address.partition("/")
    copy.run("python", "-m", "scripts.release.image", "leave", kind, content_of(kind), registry, repository, digest)


def script(copy: RepositoryCopy, name: str, *arguments: str, expect: int = 0) -> str:
    return copy.run("bash", f"scripts/release/{name}.sh", *arguments, expect=expect)


def build(copy: RepositoryCopy, workload: str, target: str, role: str) -> None:
    remote = ("--on", "sagemaker", "--set", f"recommender.role_arn={role}", "--set", f"recommender.bucket={BUCKET}")
    assert "0 errors, 0 warnings." in script(copy, "build_model", workload, target, *remote)


def deploy(copy: RepositoryCopy, stack: str, target: str) -> dict[str, str]:
    """Deploys a workload without a recommendation, and returns its stack's outputs."""
    options = ("-c", f"hosting-target={target}", "-c", "recommendation=ignore")
    copy.run("cdk", "bootstrap", "--ci", *options)
    copy.deploy(*options, stack=stack)
    return copy.outputs(stack)


def parity(copy: RepositoryCopy, workload: str, target: str) -> ModelArtifact:
    return ModelArtifact.from_json(copy.root / "build" / workload / target / "artifact.json")


def stand_ins_log(copy: RepositoryCopy) -> str:
    return copy.account.log_file.with_name("stand_ins.log").read_text("utf-8")
