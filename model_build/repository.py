"""The layout of a Triton model repository: which file goes where. Knows nothing of how the graphs were made.

<model>/config.pbtxt
<model>/warmup/query     a real request, in Triton's BYTES serialisation
<model>/1/*.py           the serving code, as it stands in containers/
<model>/1/encoder.onnx, decoder.onnx, tokenizer.json
"""

import shutil
import struct
from pathlib import Path

import containers.text2text
from model_build.config_pbtxt import WARMUP_FILE

VERSION = "1"
GRAPHS = ("encoder.onnx", "decoder.onnx")
SERVING_CODE = ("model.py", "generator.py", "decoding.py", "engine.py", "settings.py")


def files(model: str) -> list[str]:
    """Every file of the repository, sorted, relative to it."""
    version = [f"{model}/{VERSION}/{name}" for name in (*SERVING_CODE, *GRAPHS, "tokenizer.json")]
    return sorted([f"{model}/config.pbtxt", f"{model}/warmup/{WARMUP_FILE}", *version])


def version_folder(repository: Path, model: str) -> Path:
    return repository / model / VERSION


def lay_out(repository: Path, model: str, *, config: str, compiled: Path, tokenizer: Path, warmup_text: str) -> None:
    """Write the repository; `repository` must not exist."""
    version = version_folder(repository, model)
    version.mkdir(parents=True)
    (repository / model / "config.pbtxt").write_text(config, "utf-8")
    warmup = repository / model / "warmup" / WARMUP_FILE
    warmup.parent.mkdir()
    warmup.write_bytes(serialise(warmup_text))
    shutil.copyfile(tokenizer, version / "tokenizer.json")
    for name in GRAPHS:
        shutil.copyfile(compiled / name, version / name)
    code = Path(containers.text2text.__path__[0])
    for name in SERVING_CODE:
        shutil.copyfile(code / name, version / name)


def serialise(text: str) -> bytes:
    """One BYTES element: its length as four little-endian bytes, then its bytes."""
    data = text.encode()
    return struct.pack("<I", len(data)) + data
