"""Runs a family's two graphs as the modules they are exported from: the CPU's engine without an export."""

from typing import Any

import torch
from numpy.typing import NDArray

from containers.text2text.engine import OnnxEngine
from model_build.text2text.export import graphs
from tests.model_build.miniatures.tiny_bart import ANSWER, SOURCE


class EagerGraph:
    """A module with the call of ONNX Runtime's sessions."""

    def __init__(self, module: Any, outputs: tuple[str, ...]) -> None:
        self._module, self._outputs = module.eval(), outputs

    @torch.inference_mode()
    def run(self, names: list[str], feeds: dict[str, NDArray[Any]], options: object = None) -> list[NDArray[Any]]:
        given: list[Any] = [torch.tensor(feed) for name, feed in feeds.items() if "." not in name]
        parts = [torch.tensor(feed) for name, feed in feeds.items() if "." in name]
        if parts:
            given += [parts[: len(parts) // 2], parts[len(parts) // 2 :]]
        made = self._module(*given)
        return [made[self._outputs.index(name)].numpy() for name in names]


class EagerEngine(OnnxEngine):
    def __init__(self, model: Any) -> None:
        self.encoder, self.decoder = graphs(model, SOURCE, ANSWER, static=False)
        self._encoder: Any = EagerGraph(self.encoder, ("cross", "cross_bias"))
        self._set_caches(self.encoder.channels // self.decoder.heads, self.decoder.heads, self.encoder.d_kv)
        self._decoder: Any = EagerGraph(self.decoder, ("next_tokens", *self._outputs))
        self._run = None
