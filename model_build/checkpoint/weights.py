"""Checks weights: every safetensors file is whole, every weight is there, in its shape.

`check_files` and `check_weights` read only the headers of the files. `load_pretrained` reads the report of transformers
about the model that it loads.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from model_build.checkpoint.architectures import Shapes
from model_build.checkpoint.families import Family
from model_build.checkpoint.files import broken, first_line, loading, read_json

FLOATS = ("F64", "F32", "F16", "BF16")
"""The types that a weight may have. Others are of quantised models, which a build does not take."""
USELESS = {
    "embeddings.position_ids",
    "pooler.dense.weight",
    "pooler.dense.bias",
    "unused.pooler.dense.weight",
    "unused.pooler.dense.bias",
}
"""The weights that published BERTs hold beside those of their task; transformers does not load them, either."""


class Stored(NamedTuple):
    """A tensor in a file."""

    dtype: str
    shape: tuple[int, ...]


def check_files(folder: Path) -> None:
    """Checks that all safetensors files are there and as their headers promise. Raises `UsageError`."""
    files = set(folder.glob("*.safetensors"))
    for index in folder.glob("*.safetensors.index.json"):
        files |= {folder / name for name in _named_files(index)}
    if not files:
        raise broken(
            folder / "model.safetensors",
            "does not exist. Save the model with `save_pretrained(…)`, which writes safetensors.",
        )
    for file in sorted(files):
        if not file.exists():
            raise broken(file, "does not exist, but the index names it. Copy the whole checkpoint again.")
        for name, tensor in stored(file).items():
            if name.endswith("weight") and tensor.dtype not in FLOATS:
                raise broken(
                    folder, f"its weight '{name}' is of type {tensor.dtype}. A build takes {', '.join(FLOATS)}."
                )


def check_weights(folder: Path, held: Mapping[str, Stored], wanted: Shapes) -> None:
    """Checks that the files hold the weights that config.json asks for and no others. Raises `UsageError`."""
    shapes = {name: shape for name, shape, _ in wanted}
    _refuse(
        folder,
        missing=[name for name in shapes if name not in held],
        mismatched=[
            (name, held[name].shape, shape)
            for name, shape in shapes.items()
            if name in held and held[name].shape != shape
        ],
        unexpected=sorted(held.keys() - USELESS - shapes.keys()),
    )


def load_pretrained(auto: str, folder: Path, *, encoder_only: bool = False, **options: Any) -> Any:
    """Loads transformers' own module in fp32, ready to infer; `auto` is the class that finds it.

    Checks what `check_weights` checks. Raises `UsageError`. With `encoder_only`, a missing pooler and the weights of a
    head are fine.
    """
    import transformers

    with loading(folder):
        model, report = getattr(transformers, auto).from_pretrained(
            folder,
            dtype="float32",
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below
            **options,
        )
    missing = sorted(name for name in report["missing_keys"] if not (encoder_only and "pooler." in name))
    unexpected = [] if encoder_only else sorted(report["unexpected_keys"])
    _refuse(folder, missing, sorted(report["mismatched_keys"]), unexpected)
    return model.eval()


def _refuse(folder: Path, missing: list[str], mismatched: list[Any], unexpected: list[str]) -> None:
    if missing:
        raise broken(
            folder, f"its files hold no weight '{missing[0]}', which config.json asks for. Save the model again."
        )
    if mismatched:
        name, shape, wanted = mismatched[0]
        raise broken(
            folder,
            f"its weight '{name}' has the shape {list(shape)}, but config.json asks for {list(wanted)}. Save the model "
            "again.",
        )
    if unexpected:
        raise broken(folder, f"config.json has no place for its weight '{unexpected[0]}'. Save the model again.")


def stored_in_encoder(files: Iterable[Path], family: Family, task: str) -> dict[str, Stored]:
    """Returns the weights that a task reads, by BertModel's own names; for embeddings only those of the encoder."""
    tensors = {name: tensor for file in files for name, tensor in stored(file).items()}
    return {family.plain_name(name): tensors[name] for name in family.read_for(task, tensors)}


def stored(file: Path) -> dict[str, Stored]:
    """Returns the tensors of a file. Raises `UsageError` where safetensors refuses the file, with the reason."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}  # noqa: SIM118 - not a mapping
            return {name: Stored(each.get_dtype(), tuple(each.get_shape())) for name, each in slices.items()}
    except SafetensorError as error:
        size = file.stat().st_size
        raise broken(
            file, f"is not a whole safetensors file ({size} bytes; {first_line(error)}). Copy it again."
        ) from error


def _named_files(index: Path) -> set[str]:
    names = read_json(index).get("weight_map")
    if not isinstance(names, dict) or not all(
        isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors") for name in names.values()
    ):
        raise broken(index, "weight_map: names files other than safetensors files of its folder. Copy it again.")
    return set(names.values())
