"""The names that `workloads` exports, and the check that the packages are this project's own."""

import warnings
from collections.abc import Iterator
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

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

DISTRIBUTION = "transformers-in-production"
PACKAGES = ("workloads", "aws_api", "model_build", "inference_recommender", "stacks", "containers", "local_aws")


def _other_owners(code: Path) -> Iterator[str]:
    """Yields a sentence for each package of `code` that another distribution hides or has overwritten.

    Distributions are read only if a package is elsewhere, or is not as pip installed it: reading them takes long.
    """
    sizes = dict(
        line.rsplit(",", 2)[::2]
        for record in code.glob(f"{DISTRIBUTION.replace('-', '_')}-*.dist-info/RECORD")
        for line in record.read_text("utf-8").splitlines()
    )
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue
        file = Path(spec.origin)
        size = str(file.stat().st_size)
        if file.parent == code / name and sizes.get(f"{name}/__init__.py", size) == size:
            continue
        for other in distributions(path=[str(file.parents[1])]):
            if other.name != DISTRIBUTION and any(each.parts[0] == name for each in other.files or ()):
                yield (
                    f"The package '{name}' in {file.parent} belongs to the distribution {other.name}. {DISTRIBUTION} "
                    "needs its own. Install the two in different virtual environments."
                )


for _sentence in _other_owners(CODE):
    warnings.warn(_sentence, stacklevel=2)
