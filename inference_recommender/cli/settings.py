"""The workload that a command measures: as deployed or on --target, with the settings of --set."""

from collections.abc import Sequence

from aws_api.sagemaker import SageMakerAccount
from workloads import WorkloadFolder, load_workload

RECOMMENDER = "recommender."


def deployed_workload(
    name: str, target: str | None, account: SageMakerAccount | None, endpoint: str | None = None
) -> WorkloadFolder:
    """Returns a workload on `target`, or on what its stack has deployed if `account` knows, or on hosting.target.

    Raises `UsageError` for an unknown target.
    """
    folder = load_workload(name)
    if target is None and account is not None:
        target = account.hosted_target(folder.workload.stack_name, endpoint)
    if target is None or target == folder.workload.hosting.target:
        return folder
    folder.variant(target)
    return folder.hosted_on(target)


def changes_the_measurement(settings: Sequence[str]) -> bool:
    """Returns whether a setting changes what is measured, rather than how the account is used."""
    return not all(setting.startswith(RECOMMENDER) for setting in settings)
