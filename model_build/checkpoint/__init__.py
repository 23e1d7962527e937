"""Finds a workload's checkpoint, and holds its files to what a build needs of them, before anything is compiled."""

from model_build.checkpoint.files import broken, loading
from model_build.checkpoint.read import Checkpoint, read, resolve, torchscript_file

__all__ = ["Checkpoint", "broken", "loading", "read", "resolve", "torchscript_file"]
