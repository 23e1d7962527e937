"""The Triton repository of an encoder workload: an ensemble of tokenise, the compiled model, and postprocess.

    NAME               the ensemble: text fields in, answers out
    NAME_tokenise      Python: text fields → the compiled model's tensors
    NAME_model         the compiled model: TensorRT or PyTorch on a GPU, else Python with ONNX Runtime or TorchScript,
                       or for `cuda`, with TorchScript on the GPU
    NAME_postprocess   Python: the compiled model's outputs → answers

Requests of different lengths are batched together where Python runs the model: it pads them. A native backend cannot,
so there the first step pads every request to one of a few lengths.

TensorRT: `cc_model_filenames` has the plan of every GPU of the target and `default_model_filename` is left out. On any
other GPU Triton looks for model.plan, finds none and does not start (tensorrt_backend, instance_state.cc). CUDA graphs
are off: Triton would capture one for each pair of length and batch size at every start, into every model instance's
memory (the same file, InitializeGraphSpecs).

PyTorch: a trace has no names of outputs. So the config names tensors by their place, `input_ids__0`, `logits__0`
(pytorch_backend, GetNamingConvention), and the ensemble maps them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import containers.encoder
import containers.grouping
from containers.encoder.answers import OUTPUTS
from containers.encoder.settings import Settings
from model_build.checkpoint import Checkpoint
from model_build.encoder.graphs import TritonTarget, graph_files, native, settings
from model_build.triton.config_pbtxt import EnsembleStep, ModelConfig, Tensor, WarmUp, warm_up_sizes
from model_build.triton.repository import TritonModel, serialise_numbers, serialise_texts
from workloads import CudaTarget, EncoderModel, Row, Serving, TensorRtTarget, TorchScriptTarget

SEGMENT = Tensor(name="segment", data_type="TYPE_STRING", dims=(1,))


def triton_models(
    name: str,
    model: EncoderModel,
    serving: Serving,
    target: TritonTarget,
    checkpoint: Checkpoint,
    warm_up: Row,
    graphs: Path,
) -> list[TritonModel]:
    """Returns the three models and, first, the ensemble. `graphs` is the folder with the compiled graphs."""
    known = settings(model, target, checkpoint)
    if known.stride is not None:  # a request in windows is a batch of them, which Triton gives the model as a whole
        known = replace(known, max_windows=serving.max_batch_size)
    return [
        TritonModel(config=_ensemble(name, known, serving, target)),
        _tokenise(f"{name}_tokenise", known, serving, checkpoint, warm_up),
        _model(f"{name}_model", known, serving, target, graph_files(target, checkpoint, graphs)),
        _postprocess(f"{name}_postprocess", known, serving),
    ]


def _ensemble(name: str, known: Settings, serving: Serving, target: TritonTarget) -> ModelConfig:
    fields, between, outputs = _fields(known), [*map(_graph_input, known.inputs)], _graph_outputs(known)
    answers, pieces = _answers(known), _pieces(known)
    return ModelConfig(
        name=name,
        max_batch_size=serving.max_batch_size,
        inputs=fields,
        outputs=answers,
        steps=(
            EnsembleStep(model=f"{name}_tokenise", inputs=_same(fields), outputs=_same([*between, *pieces])),
            EnsembleStep(model=f"{name}_model", inputs=_same(between, target), outputs=_same(outputs, target)),
            EnsembleStep(model=f"{name}_postprocess", inputs=_same([*outputs, *pieces]), outputs=_same(answers)),
        ),
        response_cache=serving.response_cache_mb > 0,
    )


def _tokenise(name: str, known: Settings, serving: Serving, checkpoint: Checkpoint, warm_up: Row) -> TritonModel:
    fields = _fields(known)
    config = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=serving.max_batch_size,
        inputs=fields,
        outputs=(*map(_graph_input, known.inputs), *_pieces(known)),
        serving=serving.on_cpu,
        warm_ups=tuple(
            WarmUp(batch_size=size, tensors={field.name: (field, field.name) for field in fields})
            for size in warm_up_sizes(serving)
        ),
    )
    texts = {field.upper(): serialise_texts([text]) for field, text in warm_up.items()}
    return TritonModel(
        config=config, files=_code("tokenise", known) | {"tokenizer.json": checkpoint.tokenizer}, warm_up=texts
    )


def _model(
    name: str, known: Settings, serving: Serving, target: TritonTarget, graphs: Mapping[str, Path]
) -> TritonModel:
    python = not native(target)
    inputs = {each: _graph_input(each, ragged=python) for each in known.inputs}
    own = dict(zip(inputs, _own_names(inputs, target), strict=True))
    outputs = _graph_outputs(known)
    warm = _warm_up_tensors(known)
    by_capability = zip(target.compute_capabilities, graphs, strict=True) if isinstance(target, TensorRtTarget) else ()
    config = ModelConfig(
        name=name,
        **_runs_it(target),
        max_batch_size=serving.max_batch_size,
        inputs=tuple(replace(tensor, name=own[each]) for each, tensor in inputs.items()),
        outputs=tuple(
            replace(each, name=name)
            for each, name in zip(outputs, _own_names([each.name for each in outputs], target), strict=True)
        ),
        serving=serving,
        kind="KIND_GPU" if native(target) or isinstance(target, CudaTarget) else "KIND_CPU",
        cc_model_filenames=dict(by_capability),  # Triton loads the plan of the GPU that it finds
        warm_ups=tuple(
            WarmUp(
                batch_size=size,
                # Triton needs a warm-up's dims in full.
                tensors={own[each]: (replace(it, dims=warm[each].shape), each) for each, it in inputs.items()},
            )
            for size in warm_up_sizes(serving)
        ),
    )
    code = _code("engine", known) if python else {}
    if isinstance(target, CudaTarget):
        code["engines/cuda_engine.py"] = Path(containers.encoder.__path__[0], "engines/cuda_engine.py")
    return TritonModel(
        config=config,
        files={**code, **graphs},
        warm_up={key: serialise_numbers(tensor) for key, tensor in warm.items()},
    )


def _postprocess(name: str, known: Settings, serving: Serving) -> TritonModel:
    # Different lengths can share a batch: rows are looked at one request at a time.
    inputs = (*_graph_outputs(known, ragged=known.per_token), *_pieces(known, ragged=True))
    config = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=serving.max_batch_size,
        inputs=inputs,
        outputs=_answers(known),
        serving=serving.on_cpu,
    )
    return TritonModel(config=config, files=_code("postprocess", known))


def _code(step: str, known: Settings) -> dict[str, Path | str]:
    folder = Path(containers.encoder.__path__[0])
    entry, *others = containers.encoder.MODULES[step]
    files = {"model.py": folder / entry, **{file: folder / file for file in others}}
    if "engines/length_groups.py" in files:
        files["engines/length_groups.py"] = Path(containers.grouping.__file__)
    return {**files, "settings.json": known.to_json()}


def _runs_it(target: TritonTarget) -> dict[str, Any]:
    """Returns the keys that name Triton's backend, and the file it loads where that is not its default."""
    if not native(target):
        return {"backend": "python"}
    if isinstance(target, TensorRtTarget):
        return {"platform": "tensorrt_plan"}
    return {"backend": "pytorch", "default_model_filename": "model.pt"}


def _own_names(names: Iterable[str], target: TritonTarget) -> list[str]:
    """Returns the middle model's own names of its tensors: PyTorch's backend knows them by their place."""
    by_place = native(target) and isinstance(target, TorchScriptTarget)
    return [f"{name}__{place}" if by_place else name for place, name in enumerate(names)]


def _same(tensors: Iterable[Tensor], target: TritonTarget | None = None) -> dict[str, str]:
    """Returns a step's map from a model's own names, those of the middle one with `target`, to the ensemble's."""
    names = [tensor.name for tensor in tensors]
    return dict(zip(names if target is None else _own_names(names, target), names, strict=True))


def _fields(known: Settings) -> tuple[Tensor, ...]:
    return tuple(Tensor(name=name.upper(), data_type="TYPE_STRING", dims=(1,)) for name in known.fields)


def _answers(known: Settings) -> tuple[Tensor, ...]:
    widths = {"SCORES": len(known.labels), "EMBEDDING": -1}
    return tuple(
        Tensor(name=name, data_type=data_type, dims=(widths.get(name, 1),)) for name, data_type in OUTPUTS[known.kind]
    )


def _pieces(known: Settings, ragged: bool = False) -> list[Tensor]:
    """Returns what the last step needs of the first where answers are pieces of the text."""
    if not known.per_token:
        return []
    width = 3 if known.task == "token-classification" else 2
    return [Tensor(name="token_spans", data_type="TYPE_INT64", dims=(-1, width), ragged=ragged), SEGMENT]


def _graph_input(name: str, ragged: bool = False) -> Tensor:
    if name == "valid_length":
        return Tensor(name=name, data_type="TYPE_INT64", dims=(1,), scalar=True)
    return Tensor(name=name, data_type="TYPE_INT64", dims=(-1,), ragged=ragged)


def _graph_outputs(known: Settings, ragged: bool = False) -> list[Tensor]:
    """Returns the compiled model's outputs (`settings.GRAPH_OUTPUTS`); `ragged`: those per token differ in length."""
    if known.task == "token-classification":
        return [Tensor(name="logits", data_type="TYPE_FP32", dims=(-1, len(known.labels)), ragged=ragged)]
    return [
        Tensor(name=name, data_type="TYPE_FP32", dims=(1,), scalar=True)
        if name == "score"
        else Tensor(name=name, data_type="TYPE_FP32", dims=(-1,), ragged=ragged)
        for name in known.graph_outputs
    ]


def _warm_up_tensors(known: Settings) -> dict[str, Any]:
    """Returns the tensors of one row of the longest input."""
    length = known.pad_to[-1] if known.pad_to else known.max_input_tokens
    values = {
        "input_ids": np.ones(length, np.int64),
        "attention_mask": np.ones(length, np.int64),
        "token_type_ids": np.zeros(length, np.int64),
        "position_ids": np.arange(length, dtype=np.int64),
        "valid_length": np.array([length], np.int64),
    }
    return {name: values[name] for name in known.inputs}
