"""Runs a family's two graphs as the modules they are exported from: an engine of the decoding loops, made at once."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from containers.text2text.decoding import Tokens
from model_build.text2text.export import graphs
from tests.model_build.miniatures.tiny_bart import ANSWER, SOURCE


@dataclass
class State:
    cross_bias: Tensor
    cross: Tensor
    past: Tensor
    tokens: Tokens


class EagerEngine:
    def __init__(self, model: Any) -> None:
        self.encoder, self.decoder = (graph.eval() for graph in graphs(model, SOURCE, ANSWER, static=False))

    @torch.inference_mode()
    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> State:
        cross, cross_bias = self.encoder(torch.tensor(token_ids), torch.tensor(mask))
        return State(cross_bias, cross, cross[:, :, :0], np.full((len(token_ids), 1), start))

    def step(self, state: State, live: NDArray[np.bool_]) -> Tokens:
        state.tokens = self._advance(state, state.tokens)[0]
        return state.tokens

    def logits(self, state: State, tokens: Tokens, live: NDArray[np.bool_] | None = None) -> NDArray[np.float32]:
        logits: NDArray[np.float32] = self._advance(state, tokens)[1]
        return logits if live is None else logits[live]

    def select(self, state: State, rows: NDArray[np.intp]) -> None:
        at = torch.tensor(rows)
        state.cross_bias, state.cross, state.past = state.cross_bias[at], state.cross[at], state.past[at]

    @torch.inference_mode()
    def _advance(self, state: State, tokens: Tokens) -> tuple[Any, Any]:
        said, logits, state.past = self.decoder(torch.tensor(tokens), state.cross_bias, state.cross, state.past)
        return said.numpy(), logits.numpy()
