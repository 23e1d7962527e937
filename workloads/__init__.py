"""The contract: what people write, what a build makes, what the recommender decides. Imports nothing of ours."""

from workloads.artifact import (
    ModelArtifact,
    ParityReport,
    TaskMetrics,
    artifact_file,
    file_sha256,
    load_artifact,
)
from workloads.errors import ProjectError
from workloads.folder import ROOT, Example, WorkloadFolder, load_workload, workload_names
from workloads.recommendation import Autoscaling, Candidate, LatencyPercentiles, Provenance, Recommendation
from workloads.workload import (
    Objective,
    OnnxRuntimeTarget,
    PhasedTraffic,
    SageMakerEndpointHosting,
    Serving,
    Sizing,
    StairTraffic,
    Traffic,
    Workload,
)

__all__ = [
    "ROOT",
    "Autoscaling",
    "Candidate",
    "Example",
    "LatencyPercentiles",
    "ModelArtifact",
    "Objective",
    "OnnxRuntimeTarget",
    "ParityReport",
    "PhasedTraffic",
    "ProjectError",
    "Provenance",
    "Recommendation",
    "SageMakerEndpointHosting",
    "Serving",
    "Sizing",
    "StairTraffic",
    "TaskMetrics",
    "Traffic",
    "Workload",
    "WorkloadFolder",
    "artifact_file",
    "file_sha256",
    "load_artifact",
    "load_workload",
    "workload_names",
]
