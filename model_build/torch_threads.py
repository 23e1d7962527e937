"""Sets the number of threads that torch computes with, which is one for the process, and asks it for a GPU.

The number decides how sums are split and so their last digits. A build records the same differences whatever ran in the
process before it.
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


def version_without_gpu() -> str | None:
    """Returns torch's version where it finds no NVIDIA GPU, which may be how it was built; None where it finds one."""
    return None if torch.cuda.is_available() else str(torch.__version__)
