"""`python -m scripts.rehearsal.steps recommend|break|show …`: the steps of scripts/rehearse.sh between deployments.

recommend WORKLOAD COUNT MIN MAX EACH   writes workloads/WORKLOAD/recommendation.json with invented numbers
break WORKLOAD                          replaces the model in build/WORKLOAD/cpu/model.tar.gz by one that cannot load
show STACK                              prints the instances and the scaling of an endpoint

Files are below the working folder. EACH is the target of invocations per minute and instance.
"""

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import boto3

from model_build.archive import pack, unpack
from workloads import (
    Autoscaling,
    Candidate,
    ModelArtifact,
    Provenance,
    Recommendation,
    UsageError,
    artifact_file,
    file_sha256,
    load_artifact,
    load_workload,
)
from workloads.program import exit_code

TARGET = "cpu"
JOB_ARN = "arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/rehearsal"
BROKEN = 'raise RuntimeError("this model is broken, for a rehearsal")\n'


def main(arguments: Sequence[str]) -> int:
    match arguments:
        case "recommend", workload, count, least, most, each:
            scaling = Autoscaling(
                min_capacity=int(least), max_capacity=int(most), target_invocations_per_instance=float(each)
            )
            recommend(Path.cwd(), workload, int(count), scaling)
        case "break", workload:
            break_archive(Path.cwd(), workload)
        case "show", stack:
            show(stack)
        case _:
            raise UsageError(f"{' '.join(arguments)}: unknown step. Known: recommend, break, show.")
    return 0


def recommend(root: Path, workload: str, count: int, scaling: Autoscaling) -> None:
    """Writes a recommendation for the built archive. Its provenance says that nothing was measured."""
    folder = load_workload(workload, root / "workloads")
    instance_types = folder.target(TARGET).instance_types or ("ml.c5.xlarge",)
    candidate = Candidate(
        instance_type=instance_types[0],
        environment={},
        instance_count=count,
        autoscaling=scaling,
        meets_objective=True,
        reason="Chosen for a rehearsal.",
    )
    Recommendation(
        workload=workload,
        target=TARGET,
        archive_sha256=load_artifact(root, workload, TARGET).archive_sha256,
        objective=folder.hosted_on(TARGET).workload.latency_objective,
        recommended=candidate,
        candidates=(candidate,),
        provenance=Provenance(
            measured_on="local",
            machine="a rehearsal: not measured",
            job_name="rehearsal",
            job_arn=JOB_ARN,
            traffic="none",
            percentile="P99",
            measured_at="2026-01-01T00:00:00Z",
            region="us-east-1",
            run="none",
        ),
    ).write_json(folder.recommendation_file)
    limits = f"{scaling.min_capacity} to {scaling.max_capacity}"
    print(f"{folder.recommendation_file.relative_to(root)}: {count} instances, {limits}")


def break_archive(root: Path, workload: str) -> None:
    """Breaks the model and updates artifact.json: only the endpoint can find out."""
    file = artifact_file(root, workload, TARGET)
    artifact = ModelArtifact.from_json(file)
    archive = file.with_name(artifact.archive)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "repository"
        unpack(archive, folder)
        for model in folder.rglob("model.py"):
            model.write_text(BROKEN, "utf-8")
        pack(folder, archive)
    changes = {"archive_sha256": file_sha256(archive), "archive_bytes": archive.stat().st_size}
    artifact.model_copy(update=changes).write_json(file)
    print(f"{archive.relative_to(root)}: its model fails to load")


def show(stack: str) -> None:
    client: Any = boto3.client
    sagemaker, scaling = client("sagemaker"), client("application-autoscaling")
    outputs = client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]["Outputs"]
    (name,) = (each["OutputValue"] for each in outputs if each["OutputKey"] == "EndpointName")
    endpoint = sagemaker.describe_endpoint(EndpointName=name)
    print(f"{name} is {endpoint['EndpointStatus']}")
    if reason := endpoint.get("FailureReason"):
        print(f"the last update failed: {reason.splitlines()[0]}")
    (variant,) = endpoint["ProductionVariants"]
    print(f"{variant['VariantName']}: {variant['CurrentInstanceCount']} instances")
    resource = f"endpoint/{name}/variant/{variant['VariantName']}"
    described = scaling.describe_scalable_targets(ServiceNamespace="sagemaker", ResourceIds=[resource])
    (target,) = described["ScalableTargets"]
    print(f"scales from {target['MinCapacity']} to {target['MaxCapacity']}")
    described = scaling.describe_scaling_policies(ServiceNamespace="sagemaker", ResourceId=resource)
    for policy in sorted(described["ScalingPolicies"], key=lambda each: str(each["PolicyName"])):
        tracking = policy["TargetTrackingScalingPolicyConfiguration"]
        print(f"{policy['PolicyName']}: tracks {tracking['TargetValue']:,.0f}")


if __name__ == "__main__":
    sys.exit(exit_code(lambda: main(sys.argv[1:])))
