"""Weights that are the same under every version of torch and transformers, and the questions asked of them."""

from typing import Any
from zlib import crc32

import numpy as np
import torch

WHOLE, WINDOW, STRIDE, LONGEST_ANSWER = 160, 32, 8, 5
QUESTIONS = (
    ("what size", "socks in size xl or xxl"),
    ("which colour", "a red shoe with blue socks and one more shoe in red or in green, and a lamp for the night"),
    ("who sells it", "the shop at the corner sells lamps, and the one in the mall sells shoes and socks for winter"),
    ("how many", "six"),
)


def seed(network: Any) -> Any:
    """Gives every weight numbers that depend on its name alone."""
    with torch.no_grad():
        for name, weight in network.named_parameters():
            drawn = np.random.RandomState(crc32(name.encode())).normal(size=tuple(weight.shape))
            drawn = drawn if weight.dim() == 2 else 0.1 * drawn + float("LayerNorm.weight" in name)
            weight.copy_(torch.from_numpy(drawn.astype(np.float32)))
    return network.eval()
