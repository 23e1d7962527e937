"""The parity gate over what a build recorded: for a machine that can't run the compiled model, as in a release."""

from model_build import parity
from model_build.errors import NotCompared, StaleArtifact
from model_build.plan import BuildPlan
from workloads import ParityReport, load_artifact


def verify_recorded(plan: BuildPlan) -> ParityReport:
    """Raises `GateFailed`, `NotCompared` where the build compared nothing, or `StaleArtifact`."""
    artifact = load_artifact(plan.root, plan.workload.name, plan.variant_name)
    if artifact.checkpoint_sha256 != plan.checkpoint.sha256:
        raise StaleArtifact(plan.artifact, plan.workload.name, plan.variant_name)
    if artifact.parity is None:
        raise NotCompared(plan.artifact, plan.workload.name, plan.variant_name)
    parity.check_quality(artifact.parity, plan.workload.quality, ())
    parity.check_parity(artifact.parity, plan.target.parity, ())
    return artifact.parity
