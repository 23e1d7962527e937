"""The Triton repository of an encoder workload: an ensemble of tokenise, the compiled model, and postprocess.

    NAME               the ensemble: text fields in, answers out
    NAME_tokenise      Python: text fields → the compiled model's tensors
    NAME_model         the compiled model: TensorRT or PyTorch on a GPU, else Python with ONNX Runtime or TorchScript,
                       or for `cuda`, with TorchScript on the GPU
    NAME_postprocess   Python: the compiled model's outputs → answers

Requests of different lengths are batched together where Python runs the model: it pads them. A native backend cannot,
so there the first step pads every request to one of a few lengths.

TensorRT: `cc_model_filenames` has the plan of every GPU of the target and `default_model_filename` is left out, so that
on any other GPU Triton looks for model.plan, finds none and does not start (tensorrt_backend, instance_state.cc).
CUDA graphs are off. Triton captures one for a batch size and one shape, uses it only for exactly these, and by default
captures the profile's shape alone (the same file, InitializeGraphSpecs): with these lengths and batch sizes a graph
for each pair of them would be captured at every start, into every model instance's memory. What that would gain is the
launch of kernels, which for a BERT's large products is little, and it cannot be measured here.

PyTorch: a trace tells its backend no names of outputs, and of inputs only those that it made up itself. So the config
calls them by place, `input_ids__0`, `logits__0`, as the backend's naming convention has it (pytorch_backend,
GetNamingConvention), and the ensemble maps them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import containers.encoder
from containers.encoder.answers import OUTPUTS
from containers.encoder.settings import Settings
from model_build.checkpoint import Checkpoint
from model_build.encoder.graphs import TritonTarget, graph_files, native, settings
from model_build.triton.config_pbtxt import EnsembleStep, ModelConfig, Tensor, WarmUp, warm_up_sizes
from model_build.triton.repository import TritonModel, serialise_numbers, serialise_texts
from workloads import (
    CudaTarget,
    EncoderModel,
    Row,
    Serving,
    Target,
    TensorRtTarget,
    TorchScriptTarget,
)

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
    fields, between, outputs = _fields(known.fields), [*map(_graph_input, known.inputs)], _graph_outputs(known)
    answers, pieces = _answers(known), _pieces(known)
    return ModelConfig(
        name=name,
        max_batch_size=serving.max_batch_size,
        inputs=fields,
        outputs=answers,
        steps=(
            EnsembleStep(model=f"{name}_tokenise", inputs=_same(fields), outputs=_same([*between, *pieces])),
            EnsembleStep(
                model=f"{name}_model",
                inputs=_by_own_name(between, target),
                outputs=_by_own_name(outputs, target),
            ),
            EnsembleStep(model=f"{name}_postprocess", inputs=_same([*outputs, *pieces]), outputs=_same(answers)),
        ),
        response_cache=serving.response_cache_mb > 0,
    )


def _tokenise(name: str, known: Settings, serving: Serving, checkpoint: Checkpoint, warm_up: Row) -> TritonModel:
    fields = _fields(known.fields)
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
        config=config,
        files=_code("tokenise", known) | {"tokenizer.json": checkpoint.tokenizer},
        warm_up=texts,
    )


def _model(
    name: str, known: Settings, serving: Serving, target: TritonTarget, graphs: Mapping[str, Path]
) -> TritonModel:
    python = not native(target)
    inputs = {each: _graph_input(each, ragged=python) for each in known.inputs}
    own = dict(zip(inputs, _own_names(inputs, target), strict=True))
    outputs = _graph_outputs(known)
    warm = _warm_up_tensors(known)
    config = ModelConfig(
        name=name,
        **_runs_it(target),
        max_batch_size=serving.max_batch_size,
        inputs=tuple(replace(tensor, name=own[each]) for each, tensor in inputs.items()),
        outputs=tuple(map(_renamed, outputs, _own_names([each.name for each in outputs], target))),
        serving=serving,
        kind="KIND_GPU" if native(target) or isinstance(target, CudaTarget) else "KIND_CPU",
        cc_model_filenames=_by_capability(target, graphs),
        warm_ups=tuple(
            WarmUp(
                batch_size=size,
                tensors={own[each]: (_of_shape(tensor, warm[each]), each) for each, tensor in inputs.items()},
            )
            for size in warm_up_sizes(serving)
        ),
    )
    code = _code("engine", known) if python else {}
    if isinstance(target, CudaTarget):
        code["cuda_engine.py"] = Path(containers.encoder.__path__[0], "cuda_engine.py")
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
    return {"model.py": folder / entry, **{file: folder / file for file in others}, "settings.json": known.to_json()}


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


def _renamed(tensor: Tensor, name: str) -> Tensor:
    return replace(tensor, name=name)


def _by_own_name(tensors: Sequence[Tensor], target: TritonTarget) -> dict[str, str]:
    """Returns a step's map from the middle model's own names to the ensemble's tensors."""
    names = [tensor.name for tensor in tensors]
    return dict(zip(_own_names(names, target), names, strict=True))


def _by_capability(target: Target, graphs: Mapping[str, Path]) -> dict[str, str]:
    """Maps each compute capability to its plan: Triton loads the one of the GPU it finds."""
    return dict(zip(target.compute_capabilities, graphs, strict=True)) if isinstance(target, TensorRtTarget) else {}


def _fields(names: tuple[str, ...]) -> tuple[Tensor, ...]:
    return tuple(Tensor(name=name.upper(), data_type="TYPE_STRING", dims=(1,)) for name in names)


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


def _same(tensors: Any) -> dict[str, str]:
    return {tensor.name: tensor.name for tensor in tensors}


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


def _of_shape(tensor: Tensor, values: Any) -> Tensor:
    """Returns the tensor with the dims of `values`: Triton wants a warm-up's dims in full."""
    return replace(tensor, dims=values.shape)
