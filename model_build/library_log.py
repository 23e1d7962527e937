"""Sends the output, warnings and logs of libraries to a file: a build reports only through its progress port.

torch, onnxscript and transformers write through Python; ONNX Runtime and the CUDA libraries write to the process's own
descriptors 1 and 2, so those are redirected too. A caller that shows progress on a terminal keeps a copy of its
descriptor from before.
"""

import contextlib
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO


@contextlib.contextmanager
def libraries_logged(file: Path) -> Iterator[None]:
    """Redirects standard output and error of this process into `file`, until the block ends.

    Only its owner can read the new file: libraries print data, and a traceback may follow.
    """
    file.touch(mode=0o600)
    file.chmod(0o600)
    with (
        file.open("w", encoding="utf-8", buffering=1) as log,
        _descriptors_redirected(log),
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        logging.disable(logging.INFO)  # the exporter logs every rewrite
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


@contextlib.contextmanager
def _descriptors_redirected(log: TextIO) -> Iterator[None]:
    sys.stdout.flush()
    sys.stderr.flush()
    kept = {number: os.dup(number) for number in (1, 2)}
    try:
        for number in kept:
            os.dup2(log.fileno(), number)
        yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
