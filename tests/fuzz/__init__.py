"""Malformed, truncated and hostile input for everything that reads what strangers send.

A few examples each run in `make test`; `make fuzz` runs many more, with new seeds, until its time is over.
"""

import os

from hypothesis import settings

FACTOR = "FUZZ_FACTOR"
"""The environment variable that multiplies the number of examples of every test here."""


def examples(count: int) -> settings:
    """Returns the settings of a test that tries `count` examples in `make test`, and more in `make fuzz`."""
    return settings(max_examples=count * int(os.environ.get(FACTOR, "1")))
