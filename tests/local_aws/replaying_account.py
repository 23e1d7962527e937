"""A local account whose jobs make no load: `replayed_load` stands in for the load generator, all else is real.

Its Tritons take their models' configurations as they are written (completing one starts every stub twice) and end at
once when they are told to, unloading nothing: else most of a test would be the wait for the two. The slow tests, whose
account is the product's, wait. It has no GPU, whatever this machine has.
"""

import sys

from local_aws import machine
from local_aws.__main__ import main
from local_aws.process import triton

GENERATOR = (sys.executable, "-m", "tests.local_aws.replayed_load")

if __name__ == "__main__":
    setattr(machine, "gpus", lambda: ())  # noqa: B010 - mypy takes it for what functools makes of it
    triton.LIFE_FLAGS = ("--exit-timeout-secs=0", "--disable-auto-complete-config")
    sys.exit(main(generator=GENERATOR))
