"""All that an experiment needs, before anything is sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from inference_recommender.experiment.model import Access
from inference_recommender.experiment.plan import Experiment
from workloads import ModelArtifact, WorkloadFolder


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    experiment: Experiment
    source: WorkloadFolder
    artifacts: Mapping[str, ModelArtifact]
    """By variant."""
    archives: Mapping[str, Path]
    access: Access
