"""Prints the public names of torch and numpy as inf1_names.json has them.

`python tests/model_build/neuron/inf1_names.py` in the environment of `make inf1` needs only the two packages.
"""

import importlib
import json
import pkgutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

MODULES = ("torch", "torch.jit", "torch.nn", "torch.nn.functional", "numpy")
CLASSES = ("torch.Tensor", "torch.nn.Module", "numpy.ndarray")


def public(name: str) -> set[str]:
    """Returns the public names of a module, or of a class in a module, as they are installed here."""
    module, _, short = ("", "", name) if name in MODULES else name.rpartition(".")
    found = importlib.import_module(name) if not module else getattr(importlib.import_module(module), short)
    inside = {each.name for each in pkgutil.iter_modules(getattr(found, "__path__", ()))}
    return {each for each in inside | set(dir(found)) if not each.startswith("_")}


@cache
def facts() -> Any:
    return json.loads(Path(__file__).with_suffix(".json").read_text("utf-8"))


if __name__ == "__main__":
    versions = {name: importlib.import_module(name).__version__.split("+")[0] for name in ("torch", "numpy")}
    names = {name: " ".join(sorted(public(name))) for name in (*MODULES, *CLASSES)}
    json.dump({"versions": versions, "names": names}, sys.stdout, indent=1)
    print()
