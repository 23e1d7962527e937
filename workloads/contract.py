"""The names that `workloads` exports, and the check that the packages are this project's own."""

import warnings

from workloads.artifact import GuidedReport, ModelArtifact, ParityReport, artifact_file, file_sha256, load_artifact
from workloads.errors import Interrupted, MissingArtifact, NoVerdict, ProjectError, Unavailable, UsageError
from workloads.evaluation import Entity, Example, Row
from workloads.folder import CODE, ROOT, WorkloadFolder, load_workload, workload_names
from workloads.hosting import (
    Canary,
    DataCapture,
    EcsServiceHosting,
    EndpointNetwork,
    EndpointScalingRules,
    EndpointUpdate,
    ExistingNetwork,
    Linear,
    NewVpc,
    Rolling,
    SageMakerEndpointHosting,
    ScheduledBatchHosting,
    ScheduledMinimum,
)
from workloads.model import (
    METRICS,
    EncoderModel,
    FeatureExtraction,
    Model,
    QuestionAnswering,
    RandomWeights,
    TextClassification,
    TextPairScoring,
    TextRanking,
    TextToText,
    TokenClassification,
    metrics_of,
)
from workloads.objective import POISSON, ArrivalProcess, LatencyObjective, Sizing, ThroughputObjective
from workloads.owners import other_owners
from workloads.recommendation import (
    Autoscaling,
    BatchFleet,
    BatchRecommendation,
    BatchSizing,
    Candidate,
    ColdStart,
    LatencyPercentiles,
    PayloadLengths,
    Proof,
    ProofScenario,
    Provenance,
    Recommendation,
    SimulatedOn,
    TokenCounts,
)
from workloads.serving import InstanceGroup, Serving, Variant
from workloads.target import (
    CudaTarget,
    NeuronTarget,
    OnnxRuntimeTarget,
    OpenVinoTarget,
    Parity,
    Target,
    TensorRtTarget,
    TorchScriptTarget,
)
from workloads.traffic import PhasedTraffic, StairTraffic
from workloads.workload import Workload

for _sentence in other_owners(CODE):
    warnings.warn(_sentence, stacklevel=2)
