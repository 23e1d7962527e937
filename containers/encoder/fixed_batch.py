"""A model compiled for one batch size, used with any: a longer batch is split, a shorter one filled up and cut back."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .engine import Engine


class FixedBatch:
    """An `Engine` around another that takes exactly `batch_size` rows.

    The fill is the last row once more: a row of padding alone has nothing to attend to, which can end in NaN.
    """

    def __init__(self, engine: "Engine", batch_size: int) -> None:
        self._engine = engine
        self._batch_size = batch_size

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        rows = len(next(iter(tensors.values())))
        fill = -rows % self._batch_size
        filled = {name: np.concatenate([tensor, np.repeat(tensor[-1:], fill, 0)]) for name, tensor in tensors.items()}
        batches = [
            self._engine.run({name: tensor[start : start + self._batch_size] for name, tensor in filled.items()})
            for start in range(0, rows, self._batch_size)
        ]
        return {name: np.concatenate([batch[name] for batch in batches])[:rows] for name in batches[0]}
