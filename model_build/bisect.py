"""Which layers to keep in fp32, found by asking the parity gate as seldom as possible.

In: the names of a model's layers and a gate. Out: a small set of them with which the gate passes. Any runtime of low
precision can use it: fp16 of TensorRT, int8 of ONNX Runtime.

One culprit at a time is found by bisection over growing prefixes of the layers: the last layer of the shortest prefix
that passes is needed, and the rest of the culprits lie before it. If keeping more layers never makes a passing model
fail, the answer is minimal: none of its layers can be left out. k culprits among n layers take at most
2 + k·(⌈log2 n⌉ + 1) calls. If the gate is not so orderly the answer still passes, but a smaller one may exist.
"""

from collections.abc import Callable, Sequence

from model_build.errors import Fp32Fails


def fp32_layers(layers: Sequence[str], passes: Callable[[frozenset[str]], bool]) -> tuple[str, ...]:
    """A set that passes, in the order of `layers`. Raises `Fp32Fails` when even all of them are not enough.

    `passes` is asked with the layers to keep in fp32; the empty set is asked first, all of them second.
    """
    if passes(frozenset()):
        return ()
    if not passes(frozenset(layers)):
        raise Fp32Fails(len(layers))
    found: set[str] = set()
    candidates = list(layers)
    while not found or not passes(frozenset(found)):
        needed = _shortest(candidates, found, passes)
        found.add(candidates[needed - 1])
        candidates = candidates[: needed - 1]
    return tuple(layer for layer in layers if layer in found)


def _shortest(candidates: list[str], found: set[str], passes: Callable[[frozenset[str]], bool]) -> int:
    """Length of the shortest prefix that passes together with `found`; without any it fails, with all it passes."""
    fails, enough = 0, len(candidates)
    while enough - fails > 1:
        middle = (fails + enough) // 2
        if passes(frozenset({*found, *candidates[:middle]})):
            enough = middle
        else:
            fails = middle
    return enough
