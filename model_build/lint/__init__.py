"""What would otherwise fail after half an hour on SageMaker, found in a model.tar.gz or a Triton repository folder.

In: a path, and what is known of where it will run. Out: findings, each with what, where, why and the fix. Nothing is
unpacked, nothing is executed, nothing is sent. It knows the rules of Triton and SageMaker; it does not load a model.
"""

from model_build.lint.check import lint
from model_build.lint.finding import Finding, Severity
from model_build.lint.render import render
from model_build.lint.situation import NO_HOST_AMI, Situation, UnmadeCheck, unmade_checks

__all__ = [
    "NO_HOST_AMI",
    "Finding",
    "Severity",
    "Situation",
    "UnmadeCheck",
    "lint",
    "render",
    "unmade_checks",
]
