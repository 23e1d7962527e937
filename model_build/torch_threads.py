"""Sets the number of threads that torch computes with, which is one for the process.

It decides how sums are split and so their last digits. A build records the same differences whatever ran in the process
before it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads_kept() -> Iterator[None]:
    """Sets the number back after the block, which may change it, as loading a TorchScript engine does."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def every_core() -> Iterator[None]:
    """Gives torch a thread for each core that this process may run on."""
    with threads_kept():
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        yield
