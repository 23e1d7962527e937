"""An experiment before anything is sent, and with its account and folder."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.plan import Experiment
from inference_recommender.experiment.resources import ExperimentAccess
from inference_recommender.measure.job_service import Sleep
from inference_recommender.measure.run import RunSubject
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress
from workloads import ModelArtifact, WorkloadFolder
from workloads.instances import instance_shape


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedExperiment:
    """An experiment before anything is sent."""

    experiment: Experiment
    source: WorkloadFolder
    artifacts: Mapping[str, ModelArtifact]
    """Keyed by variant."""
    archives: Mapping[str, Path]
    """The model archives, keyed by variant."""
    access: ExperimentAccess


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentRun:
    """A prepared experiment with its account and its folder."""

    prepared: PreparedExperiment
    account: SageMakerAccount
    folder: ExperimentFolder
    progress: Progress
    sleep: Sleep = time.sleep

    def subject(self, variant: str) -> RunSubject:
        source = self.prepared.source
        return RunSubject(
            workload=source.workload,
            payloads=source.payloads(),
            artifact=self.prepared.artifacts[variant],
            traffic=self.prepared.experiment.traffic,
        )

    def with_gpus(
        self, measured: Measurement, production_variant: str | None, began: datetime, ended: datetime
    ) -> Measurement:
        """Adds the utilisation of a GPU, if the instance has any and CloudWatch has the metric."""
        shape = instance_shape(measured.instance_type)
        if not shape or not shape.gpus or production_variant is None:
            return measured
        of_all = self.account.gpu_utilization(measured.endpoint_name, production_variant, began, ended)
        of_one = None if of_all is None else of_all / shape.gpus
        return measured.model_copy(update={"gpu_utilization_percent": of_one})
