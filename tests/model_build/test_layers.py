"""The parts of exported graphs have names that a person can read and write."""

import pytest

from model_build import layers
from tests.model_build.tensorrt.tensorrt_graphs import graph
from workloads import UsageError


def test_layers_are_called_after_modules_and_weights() -> None:
    assert layers.names(graph("t5-encoder")) == (
        "own",
        "embedding",
        "layers.0.norm",
        "layers.0.qkv",
        "layers.0.own",
        "layers.0.out",
        "layers.0.feed_forward.norm",
        "layers.0.feed_forward.into",
        "layers.0.feed_forward.activation",
        "layers.0.feed_forward.out",
        "layers.0.feed_forward.own",
        "layers.1.norm",
        "layers.1.qkv",
        "layers.1.own",
        "layers.1.out",
        "layers.1.feed_forward.norm",
        "layers.1.feed_forward.into",
        "layers.1.feed_forward.activation",
        "layers.1.feed_forward.out",
        "layers.1.feed_forward.own",
        "norm",
        "cross_weights",
    )


def test_a_module_means_everything_in_it() -> None:
    names = layers.names(graph("t5-encoder"))
    assert layers.chosen(names, ["layers.1.feed_forward"]) == {
        f"layers.1.feed_forward.{part}" for part in ("norm", "into", "activation", "out", "own")
    }
    assert layers.of_graph(["encoder.layers.1", "decoder.head"], "decoder") == ("head",)


def test_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError) as raised:
        layers.chosen(("norm", "head"), ["head", "layers.7"])
    assert raised.value.exit_code == 2
    assert str(raised.value) == (
        "fp32_layers: the graph has no layers.7. A name covers all layers that begin with it and a dot. "
        "Layers: norm, head."
    )
