"""The search for layers to keep in fp32, against gates whose culprits are known."""

from hypothesis import given
from hypothesis import strategies as st

from model_build.fp32_layers import smallest

LAYERS = [f"layers.{i}" for i in range(100)]
layer_lists = st.lists(st.text("abc", min_size=1), unique=True, min_size=1, max_size=60)


class Gate:
    """Passes when one of its ways to be mended is in fp32, and counts how often it is asked."""

    def __init__(self, *ways: set[str]) -> None:
        self.ways, self.calls = ways, 0

    def __call__(self, kept: frozenset[str]) -> bool:
        self.calls += 1
        return any(way <= kept for way in self.ways)


@given(layer_lists, st.data())
def test_exactly_the_culprits_stay_in_fp32_in_the_models_order(layers: list[str], data: st.DataObject) -> None:
    culprits = data.draw(st.sets(st.sampled_from(layers)))
    assert smallest(layers, Gate(culprits)) == tuple(layer for layer in layers if layer in culprits)


@given(layer_lists, st.data())
def test_no_layer_of_the_answer_can_be_left_out(layers: list[str], data: st.DataObject) -> None:
    """Also where different sets would do."""
    ways = data.draw(st.lists(st.sets(st.sampled_from(layers), min_size=1), min_size=1, max_size=4))
    gate = Gate(*ways)
    kept = frozenset(smallest(layers, gate) or ())
    assert gate(kept)
    assert not any(gate(kept - {layer}) for layer in kept)


def test_one_culprit_of_a_hundred_takes_ten_calls() -> None:
    gate = Gate({"layers.73"})
    assert smallest(LAYERS, gate) == ("layers.73",)
    assert gate.calls <= 10


def test_no_layer_stays_in_fp32_if_the_gate_passes() -> None:
    gate = Gate(set())
    assert smallest(LAYERS, gate) == ()
    assert gate.calls == 1


def test_a_model_that_fails_in_fp32_too_is_not_searched() -> None:
    gate = Gate()
    assert smallest(LAYERS, gate) is None
    assert gate.calls == 2
