"""Checkpoint → portable graphs → compiled for a target → verified → Triton repository → model.tar.gz."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from model_build.python_build import build

__all__ = ["build"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from model_build.python_build import build

    return build
