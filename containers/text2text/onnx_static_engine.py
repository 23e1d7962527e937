"""Runs the static graphs of a T5 on ONNX Runtime, by its CUDA provider or on CPU: a `Program` for each size.

    encoder.onnx, decoder.onnx   the static graphs, in fp32 or with their caches in fp16: the files that TensorRT gets

Every tensor stays in one place of the device, so that a run on a GPU can be a CUDA graph: ONNX Runtime captures it the
first time it sees the graph's number. It captures one run, so a launch is `TOKENS_PER_LAUNCH` graphs, and it waits for
each. On CPU the growing cache of `engine.py` is the faster one; there this is how the graphs are tested. Not run on a
GPU where this was written: there is none.
"""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnxruntime import InferenceSession, OrtValue

from .decoding import Tokens
from .static_cache import TOKENS_PER_LAUNCH, StaticEngine, batch_sizes

Device = Literal["cpu", "cuda"]
TYPES: dict[str, Any] = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(float16)": np.float16}


def load(folder: Path, device: Device, *, most_rows: int, longest: int) -> StaticEngine:
    """Loads the graphs of `folder` onto the first GPU or the CPU, for batches of up to `most_rows` × `longest`."""
    encoder, decoder = (_session(folder / f"{graph}.onnx", device) for graph in ("encoder", "decoder"))
    sizes = batch_sizes(most_rows, longest)
    return StaticEngine([OnnxProgram(encoder, decoder, device, *size, index) for index, size in enumerate(sizes)])


class OnnxProgram:
    """Bindings of both graphs at one size of batch. Step i of a launch reads tokens i and writes tokens i + 1."""

    def __init__(
        self,
        encoder: InferenceSession,
        decoder: InferenceSession,
        device: Device,
        rows: int,
        source: int,
        number: int,
    ) -> None:
        self.rows, self.source, self._device = rows, source, device
        axes = {"batch": rows, "source": source}
        inputs = {each.name: self._place(each, axes) for each in encoder.get_inputs()}
        self._token_ids, self._mask = inputs["input_ids"], inputs["attention_mask"]
        cross = {each.name: self._place(each, axes) for each in encoder.get_outputs()}
        self._encode = Run(encoder, inputs, cross, number)
        known = {each.name: each for each in (*decoder.get_inputs(), *decoder.get_outputs())}
        self._tokens = [self._place(known["tokens"], axes) for _ in range(TOKENS_PER_LAUNCH)]
        self._position = [self._place(known["position"], axes) for _ in (0, 1)]
        self._caches = [self._place(known["past"], axes) for _ in (0, 1)]
        self._empty = np.zeros_like(self._caches[0].numpy())
        self._logits = self._place(known["logits"], axes)
        self._steps = [
            Run(decoder, cross | self._read(step), {"logits": self._logits} | self._written(step + 1), graph)
            for step, graph in enumerate(range(number * TOKENS_PER_LAUNCH, (number + 1) * TOKENS_PER_LAUNCH))
        ]

    def encode(self, token_ids: Tokens, mask: Tokens, start: int) -> None:
        self._token_ids.update_inplace(token_ids)
        self._mask.update_inplace(mask)
        self._tokens[0].update_inplace(np.full((self.rows, 1), start, np.int64))
        self._position[0].update_inplace(np.zeros(1, np.int64))
        # Places that are not written yet are masked, and would still make a sum no number if they held none.
        self._caches[0].update_inplace(self._empty)
        self._encode()

    def decode(self) -> Tokens:
        for step in self._steps:
            step()
        # The last step wrote where the first one reads.
        return np.concatenate([tokens.numpy() for tokens in (*self._tokens[1:], self._tokens[0])], 1)

    def logits(self, step: int, tokens: Tokens) -> NDArray[Any]:
        self._tokens[step % TOKENS_PER_LAUNCH].update_inplace(tokens)
        self._steps[step % TOKENS_PER_LAUNCH]()
        # On CPU it is the very place that the next step writes.
        answer: NDArray[Any] = self._logits.numpy().copy()
        return answer

    def _read(self, step: int) -> dict[str, OrtValue]:
        turn = step % 2
        return {
            "tokens": self._tokens[step % TOKENS_PER_LAUNCH],
            "position": self._position[turn],
            "past": self._caches[turn],
        }

    def _written(self, step: int) -> dict[str, OrtValue]:
        names = {"tokens": "next_tokens", "position": "next_position", "past": "present"}
        return {names[name]: place for name, place in self._read(step).items()}

    def _place(self, tensor: Any, axes: dict[str, int]) -> OrtValue:
        shape = [axes[size] if isinstance(size, str) else size for size in tensor.shape]
        return OrtValue.ortvalue_from_shape_and_type(shape, TYPES[tensor.type], self._device, 0)


class Run:
    """A run of a session from and to places that stay; `graph` is its number among the session's CUDA graphs."""

    def __init__(
        self, session: InferenceSession, inputs: dict[str, OrtValue], outputs: dict[str, OrtValue], graph: int
    ) -> None:
        self._session, self._binding, self._options = session, session.io_binding(), onnxruntime.RunOptions()
        self._options.add_run_config_entry("gpu_graph_id", str(graph))
        for name, place in inputs.items():
            self._binding.bind_ortvalue_input(name, place)
        for name, place in outputs.items():
            self._binding.bind_ortvalue_output(name, place)

    def __call__(self) -> None:
        self._session.run_with_iobinding(self._binding, self._options)


def _session(file: Path, device: Device) -> InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    on_gpu = ("CUDAExecutionProvider", {"enable_cuda_graph": "1", "use_tf32": "0"})
    return InferenceSession(str(file), options, providers=[on_gpu if device == "cuda" else "CPUExecutionProvider"])
