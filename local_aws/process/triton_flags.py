"""The SageMaker Triton container's environment variables as tritonserver flags.

Follows what the container's start script does (triton-inference-server/server, docker/sagemaker/serve): the same
variables and defaults but one, verbose logging, which the container leaves on and which would drown a local log.
Variables of GPUs and of multi-model endpoints have no meaning here and are left alone.
"""

import shlex
from collections.abc import Mapping

_PREFIX = "SAGEMAKER_TRITON_"

# Variable → (flag, the container's default).
_FLAGS = {
    "BUFFER_MANAGER_THREAD_COUNT": ("--buffer-manager-thread-count={}", None),
    "THREAD_COUNT": ("--sagemaker-thread-count={}", None),
    "LOG_INFO": ("--log-info={}", None),
    "LOG_WARNING": ("--log-warning={}", None),
    "LOG_ERROR": ("--log-error={}", None),
    "SHM_DEFAULT_BYTE_SIZE": ("--backend-config=python,shm-default-byte-size={}", "16777216"),
    "SHM_GROWTH_BYTE_SIZE": ("--backend-config=python,shm-growth-byte-size={}", "1048576"),
}
_TRUTH = {"true": "1", "false": "0"}


def container_flags(environment: Mapping[str, str]) -> list[str]:
    verbose = environment.get(f"{_PREFIX}LOG_VERBOSE", "false")
    flags = [f"--log-verbose={_TRUTH.get(verbose.lower(), verbose)}"]
    for name, (flag, default) in _FLAGS.items():
        if (value := environment.get(f"{_PREFIX}{name}") or default) is not None:
            flags.append(flag.format(value))
    return flags + shlex.split(environment.get(f"{_PREFIX}ADDITIONAL_ARGS", ""))
