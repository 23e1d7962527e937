"""The contract: what people write, what a build makes, what the recommender decides. Imports nothing of ours."""

from workloads.artifact import ModelArtifact, ParityReport, artifact_file, file_sha256, load_artifact
from workloads.endpoint_hosting import (
    Canary,
    DataCapture,
    EndpointNetwork,
    EndpointScalingRules,
    EndpointUpdate,
    ExistingVpc,
    Linear,
    NewVpc,
    Rolling,
    SageMakerEndpointHosting,
    Shadow,
)
from workloads.errors import MissingArtifact, ProjectError
from workloads.folder import ROOT, Example, Row, WorkloadFolder, load_workload, workload_names
from workloads.hosting import EcsServiceHosting, ExistingNetwork, Hosting, ScheduledBatchHosting
from workloads.model import (
    METRICS,
    EncoderModel,
    Model,
    QuestionAnswering,
    RandomWeights,
    TextClassification,
    TextPairScoring,
    TextToText,
)
from workloads.objective import LatencyObjective, Sizing, ThroughputObjective
from workloads.recommendation import Autoscaling, Candidate, LatencyPercentiles, Provenance, Recommendation
from workloads.serving import Serving, Variant
from workloads.target import (
    NeuronTarget,
    OnnxRuntimeTarget,
    Parity,
    Target,
    TensorRtTarget,
    TorchScriptTarget,
)
from workloads.traffic import PhasedTraffic, StairTraffic, Traffic
from workloads.workload import Workload

__all__ = [
    "METRICS",
    "ROOT",
    "Autoscaling",
    "Canary",
    "Candidate",
    "DataCapture",
    "EcsServiceHosting",
    "EncoderModel",
    "EndpointNetwork",
    "EndpointScalingRules",
    "EndpointUpdate",
    "Example",
    "ExistingNetwork",
    "ExistingVpc",
    "Hosting",
    "LatencyObjective",
    "LatencyPercentiles",
    "Linear",
    "MissingArtifact",
    "Model",
    "ModelArtifact",
    "NeuronTarget",
    "NewVpc",
    "OnnxRuntimeTarget",
    "Parity",
    "ParityReport",
    "PhasedTraffic",
    "ProjectError",
    "Provenance",
    "QuestionAnswering",
    "RandomWeights",
    "Recommendation",
    "Rolling",
    "Row",
    "SageMakerEndpointHosting",
    "ScheduledBatchHosting",
    "Serving",
    "Shadow",
    "Sizing",
    "StairTraffic",
    "Target",
    "TensorRtTarget",
    "TextClassification",
    "TextPairScoring",
    "TextToText",
    "ThroughputObjective",
    "TorchScriptTarget",
    "Traffic",
    "Variant",
    "Workload",
    "WorkloadFolder",
    "artifact_file",
    "file_sha256",
    "load_artifact",
    "load_workload",
    "workload_names",
]
