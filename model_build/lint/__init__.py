"""Finds in a model.tar.gz, or the folder it is packed from, what would otherwise fail after half an hour on SageMaker.

The archive is a Triton repository, or a model for Neuron as containers/neuron serves it.

In: a path, and what is known of where it will run. Out: findings, each with what, where, why and the fix. Nothing is
unpacked, executed or sent. The checks know the rules of Triton and SageMaker; they do not load a model.
"""

from model_build.lint.check import lint
from model_build.lint.finding import Finding, Severity, render
from model_build.lint.runtime_context import NO_HOST_AMI, RuntimeContext, UnmadeCheck, unmade_checks

__all__ = [
    "NO_HOST_AMI",
    "Finding",
    "RuntimeContext",
    "Severity",
    "UnmadeCheck",
    "lint",
    "render",
    "unmade_checks",
]
