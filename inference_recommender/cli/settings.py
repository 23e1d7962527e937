"""The workload that a command measures: as deployed or on --target, with the settings of --set."""

from collections.abc import Sequence
from copy import copy
from pathlib import Path

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli.arguments import set_keys
from workloads import WorkloadFolder, load_workload
from workloads.workload import Workload

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


def with_settings(folder: WorkloadFolder, settings: Sequence[str]) -> WorkloadFolder:
    """Returns the workload with the arguments of --set. Raises `UsageError` or `InvalidDocument`."""
    if not settings:
        return folder
    table = folder.workload.model_dump(mode="json")
    set_keys(table, settings, "TABLE.KEY=VALUE, such as recommender.bucket=NAME")
    changed = copy(folder)
    changed.workload = Workload.from_table(Path("--set"), table)
    return changed


def changes_the_measurement(settings: Sequence[str]) -> bool:
    """Returns whether a setting changes what is measured, rather than how the account is used."""
    return not all(setting.startswith(RECOMMENDER) for setting in settings)
