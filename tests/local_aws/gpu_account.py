"""A `replaying_account` on a machine with one NVIDIA GPU, which a stand-in for NVML reports as 37 % busy."""

import sys

from local_aws import machine
from local_aws.__main__ import main
from tests.local_aws.replaying_account import GENERATOR
from tests.local_aws.stand_in_nvml import StandInNvml

if __name__ == "__main__":
    setattr(machine, "gpus", lambda: ("NVIDIA T4",))  # noqa: B010 - mypy takes it for what functools makes of it
    sys.modules["pynvml"] = StandInNvml([37])  # type: ignore[assignment]
    sys.exit(main(generator=GENERATOR))
