"""The threads that torch computes with: one number for the process, which decides how sums are split and so their last
digits. A build is to record the same differences whatever ran in the process before it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads_kept() -> Iterator[None]:
    """What is done inside, such as loading a TorchScript engine, may change their number; it is set back after."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def every_core() -> Iterator[None]:
    """A thread for each core that this process may run on."""
    with threads_kept():
        torch.set_num_threads(len(os.sched_getaffinity(0)))
        yield
