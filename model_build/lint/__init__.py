"""Finds problems in a model.tar.gz, or its unpacked folder, that would fail on SageMaker after half an hour.

The archive is a Triton repository, or a model for Neuron as containers/neuron serves it. A finding has the problem, its
place, its effect and the fix. Nothing is unpacked, executed or sent: the checks apply the rules of Triton and SageMaker
without loading a model.
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
