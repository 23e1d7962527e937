"""A local account whose jobs make no load: `replayed_load` stands in for the load generator, all else is real."""

import sys

from local_aws.__main__ import main

GENERATOR = (sys.executable, "-m", "tests.local_aws.replayed_load")

if __name__ == "__main__":
    sys.exit(main(generator=GENERATOR))
