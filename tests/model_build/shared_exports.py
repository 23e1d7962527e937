"""torch's ONNX exporter for tests: the same module with the same inputs is exported once for a whole run of tests.

An export takes seconds and every build begins with one. Tests build the same few tiny checkpoints again and again, in
several processes; the first export of each is kept in a folder that all processes of a run share. `off` is for tests
of the export itself.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

EXPORT: Any = torch.onnx.export
SCALARS = (bool, int, float, str, tuple, list, frozenset, type(None))


class Exported:
    """The part of an ONNXProgram that the exporters of this project use."""

    def __init__(self, file: Path) -> None:
        self.model_proto = onnx.load(file)

    def save(self, file: Path, *, external_data: bool) -> None:
        assert not external_data, "a graph with external weights is exported by a process of its own"
        onnx.save(self.model_proto, file)


class SharedExports:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], *file: str, **options: Any) -> Any:
        if file:  # The old exporter, which writes a file itself, takes no time.
            return EXPORT(module, inputs, *file, **options)
        return self._shared(module, inputs, **options)

    def _shared(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], **options: Any) -> Exported:
        file = self.folder / f"{fingerprint(module, inputs, options)}.onnx"
        self.folder.mkdir(parents=True, exist_ok=True)
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # Another process may be at the same export.
            if not file.exists():
                scratch = file.with_suffix(".part")
                onnx.save(EXPORT(module, inputs, **options).model_proto, scratch)
                scratch.replace(file)
        return Exported(file)

    @contextmanager
    def off(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.onnx, "export", EXPORT)
            yield


@contextmanager
def sharing(base: Path) -> Iterator[SharedExports]:
    """Puts shared exports in the exporter's place.

    `base` is the temporary folder of this process; those of pytest-xdist's processes lie below a common one.
    """
    shared = SharedExports((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "exports")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.onnx, "export", shared)
        yield shared


def fingerprint(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...], options: dict[str, Any]) -> str:
    """A hash of everything that decides an export: code, weights, settings of all modules, inputs and options."""
    shapes = [[part.shape for part in (each if isinstance(each, list) else [each])] for each in inputs]
    digest = hashlib.sha256(repr((torch.__version__, shapes, sorted(options.items()))).encode())
    for name, part in module.named_modules():
        settings = {key: value for key, value in vars(part).items() if isinstance(value, SCALARS)}
        digest.update(repr((name, type(part).__module__, type(part).__qualname__, sorted(settings.items()))).encode())
    for name, tensor in module.state_dict().items():
        digest.update(name.encode() + repr(tensor.dtype).encode() + tensor.detach().numpy().tobytes())
    return digest.hexdigest()
