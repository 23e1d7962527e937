"""The use case: measure every cell that is left, each kept as soon as its test has ended.

Knows `Account` as its one port. Killed at any moment and started again on the same folder, it goes on where it was: a
job that was begun is waited for, a cell that is measured is left alone, a test that failed is made again. How a batch
is measured is `by_job`'s or `by_harness`' matter; both work on a model that lives as long as the batch.
"""

import time

from inference_recommender.experiment.account import Account
from inference_recommender.experiment.by_harness import measure_by_harness
from inference_recommender.experiment.by_job import measure_by_job
from inference_recommender.experiment.folder import ExperimentFolder
from inference_recommender.experiment.model import model_request
from inference_recommender.experiment.plan import Batch, batches
from inference_recommender.experiment.prepared import Prepared
from inference_recommender.jobs.service import Sleep
from inference_recommender.measurement import Measurement
from inference_recommender.progress import Progress
from workloads import Interrupted

__all__ = ["Prepared", "run"]


def run(
    prepared: Prepared, account: Account, kept: ExperimentFolder, progress: Progress, sleep: Sleep = time.sleep
) -> tuple[Measurement, ...]:
    """Every cell's measurement, in the experiment's order; a test that failed has a reason instead of figures.

    Raises `Interrupted` or an `AwsUnavailable` that is about no single job; what is measured by then is
    kept.
    """
    experiment = prepared.experiment
    begun = [batch for batch in kept.batches() if not all(kept.ended(cell) for cell in batch.cells)]
    for batch in begun:
        _run_batch(prepared, batch, account, kept, progress, sleep)
    names = [batch.name for batch in kept.batches()]
    for batch in batches(experiment, kept.left(experiment.cells), names):
        kept.keep_batch(batch)
        _run_batch(prepared, batch, account, kept, progress, sleep)
    return kept.measured(experiment.cells)


def _run_batch(
    prepared: Prepared, batch: Batch, account: Account, kept: ExperimentFolder, progress: Progress, sleep: Sleep
) -> None:
    artifact = prepared.artifacts[batch.variant]
    account.upload_archive(prepared.access.archive_url(artifact), prepared.archives[batch.variant])
    account.make_model(model_request(batch.name, artifact, prepared.access))
    measure = {"sagemaker": measure_by_job, "load-test": measure_by_harness}[prepared.experiment.load]
    try:
        measure(prepared, batch, account, kept, progress, sleep)
    except Interrupted:
        account.delete_model(batch.name)
        raise
    account.delete_model(batch.name)
