"""A local account whose jobs make no load: `replayed_load` stands in for the load generator, all else is real.

Its Tritons end at once when they are told to. The product's second or two of unloading is what most tests would wait
for; the slow tests, whose account is the product's, do.
"""

import sys

from local_aws.__main__ import main
from local_aws.process import triton

GENERATOR = (sys.executable, "-m", "tests.local_aws.replayed_load")

if __name__ == "__main__":
    triton.EXIT_TIMEOUT_S = 0
    sys.exit(main(generator=GENERATOR))
