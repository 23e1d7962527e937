"""Starts a real Triton without the seconds that answer no request.

By default, Triton starts every Python model twice, the first time only to complete its configuration, and waits whole
seconds for the models' end. Here the configurations are complete, and the tests of the local account start Triton with
the container's own defaults.
"""

from collections.abc import Mapping
from pathlib import Path

from local_aws.process.triton import TritonServer

EXTRA = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
FLAGS = "--disable-auto-complete-config --exit-timeout-secs=0"


def start_triton(
    repository: Path, *, default_model: str, environment: Mapping[str, str], log_file: Path
) -> TritonServer:
    flags = f"{FLAGS} {environment.get(EXTRA, '')}"
    return TritonServer.start(
        repository, default_model=default_model, environment={**environment, EXTRA: flags}, log_file=log_file
    )
