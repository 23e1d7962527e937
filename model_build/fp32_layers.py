"""Finds the layers to keep in fp32 so that a model of low precision passes its parity gate, with few tries.

A try compiles the target with a set of layers in fp32 and compares the result with the original. The needed layers are
found one after the other, by bisection over prefixes of the layers: the last layer of the shortest prefix that passes
is needed. k layers among n take at most 2 + k·(⌈log2 n⌉ + 1) tries.
"""

import shutil
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from model_build import parity
from model_build.backends import backend
from model_build.compile_inputs import CompileInputs
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent

Compile = Callable[[CompileInputs, Path, Path, Progress], object]
"""Writes a target's graphs into a folder; the second folder is scratch, as `Backend.compile_graphs` takes them."""


def advice(
    plan: BuildPlan, compare: parity.Compare, compile_graphs: Compile, scratch: Path, progress: Progress
) -> str | None:
    """The sentence that names the layers with which the gate passes, or says that none do.

    None where the runtime has no such choice. `scratch` is the folder that the target was compiled in.
    """
    tried = scratch / "tried"
    if not (layers := backend(plan).layers(plan.compile_inputs, scratch, progress)):
        return None
    tried.mkdir()
    shutil.copyfile(plan.checkpoint.tokenizer, tried / "tokenizer.json")  # where the serving code looks for it

    def passes(kept: frozenset[str]) -> bool:
        progress(f"Searching for layers to keep in fp32, trying {len(kept)}")
        target = plan.target.model_copy(update={"fp32_layers": tuple(sorted(kept))})
        compile_graphs(replace(plan.compile_inputs, target=target), tried, scratch, silent)
        figures = parity.report(plan.workload.metrics, compare(tried, silent))
        return not parity.differences(figures, plan.target.parity)

    kept = smallest(layers, passes)
    if kept is None:
        return (
            f"The parity gate fails even with all {len(layers)} layers in fp32, so no list of fp32_layers can help. "
            'Build the target with precision = "fp32" and look at what the gate says there.'
        )
    named = ", ".join(f'"{layer}"' for layer in kept)
    return f"Or keep these layers in fp32, with which it passes: fp32_layers = [{named}]"


def smallest(layers: Sequence[str], passes: Callable[[frozenset[str]], bool]) -> tuple[str, ...] | None:
    """A set that passes, in the order of `layers`; None when even all of them are not enough.

    `passes` is asked with the layers to keep in fp32; the empty set is asked first, all of them second.
    """
    if passes(frozenset()):
        return ()
    if not passes(frozenset(layers)):
        return None
    kept: set[str] = set()
    candidates = list(layers)
    while not kept or not passes(frozenset(kept)):
        # The shortest prefix that passes together with `kept`; the empty one fails, the whole one passes.
        last = bisect_left(
            range(1, len(candidates)), True, key=lambda count: passes(frozenset({*kept, *candidates[:count]}))
        )
        kept.add(candidates[last])
        candidates = candidates[:last]
    return tuple(layer for layer in layers if layer in kept)
