"""The Triton repository of a text2text workload: one Python-backend model, `TEXT` in, the workload's answer out."""

import json
from dataclasses import replace
from pathlib import Path

import containers.text2text
from containers import grouping
from containers.text2text.generation import Generation
from containers.text2text.settings import Settings
from model_build.checkpoint import Checkpoint, broken
from model_build.text2text import generation
from model_build.triton.config_pbtxt import ModelConfig, Tensor, WarmUp, warm_up_sizes
from model_build.triton.repository import TritonModel, serialise_texts
from workloads import CudaTarget, Row, Serving, Target, TensorRtTarget, TextToText, UsageError

GRAPHS = ("encoder", "decoder")
SERVING_CODE = (
    "model.py",
    "generator.py",
    "decoding.py",
    "guided.py",
    "search.py",
    "beams.py",
    "constraints.py",
    "generation.py",
    "settings.py",
)
ENGINES = {
    "onnxruntime": ("engine.py",),
    "cuda": ("static_cache.py", "torch_engine.py"),
    "tensorrt": ("static_cache.py", "tensorrt_engine.py", "tensorrt_plan.py"),
}
"""The code that runs the graphs, by runtime: a container has the packages of its own runtime and no other."""
LAUNCH_TOKENS = {"onnxruntime": 256}
"""The fixed cost of decoding a batch, in source tokens, by runtime. An estimate: a step costs nearly as much for one
row as for several, so that only long rows are worth a batch of their own."""
SEARCHES_BEAMS = ("onnxruntime",)
"""The runtimes that search beams; every runtime of `ENGINES` decodes greedily and by chance."""
CHECKS_DRAFTS = ("onnxruntime", "cuda")
"""The runtimes that read several tokens in a pass, for guided decoding."""
TEXT = Tensor(name="TEXT", data_type="TYPE_STRING", dims=(1,))


def graph_files(target: Target, graphs: Path) -> dict[str, Path]:
    """The compiled files in `graphs`, by their name in the version folder."""
    names = [f"{graph}.{'pt' if isinstance(target, CudaTarget) else 'onnx'}" for graph in GRAPHS]
    if isinstance(target, TensorRtTarget):
        names = [f"{graph}.{capability}.plan" for graph in GRAPHS for capability in target.compute_capabilities]
    return {name: graphs / name for name in names}


def settings(model: TextToText, target: Target, checkpoint: Checkpoint) -> Settings:
    """Takes token ids from the checkpoint and lengths from the workload. Raises `UsageError`."""
    start, pad = (_tokens(checkpoint, key)[0] for key in ("decoder_start_token_id", "pad_token_id"))
    return Settings(
        max_input_tokens=model.max_input_tokens,
        max_output_tokens=model.max_output_tokens,
        decoder_start_token_id=start,
        eos_token_ids=_tokens(checkpoint, "eos_token_id"),
        pad_token_id=pad,
        threads=getattr(target, "threads", 1),
        launch_tokens=LAUNCH_TOKENS.get(target.runtime, 0),
        generation=_supported(generation.served(model, checkpoint), target),
        answer=model.answer,
    )


def _supported(served: Generation, target: Target) -> Generation:
    """Returns the decoding, without drafts if the engine reads one token in a pass."""
    if target.runtime in CHECKS_DRAFTS or served.guided == "off":
        return served
    return replace(served, guided="off", settable=tuple(name for name in served.settable if name != "guided"))


def triton_models(
    name: str, model: TextToText, serving: Serving, target: Target, checkpoint: Checkpoint, warm_up: Row, graphs: Path
) -> list[TritonModel]:
    """Returns the one model. `graphs` is the folder with the compiled graphs."""
    decoding = settings(model, target, checkpoint)
    _check_served(decoding, serving, target)
    code = Path(containers.text2text.__path__[0])
    config = ModelConfig(
        name=name,
        backend="python",
        max_batch_size=serving.max_batch_size,
        inputs=(TEXT,),
        outputs=(Tensor(name=model.answer, data_type="TYPE_STRING", dims=(1,)),),
        serving=serving,
        kind="KIND_GPU" if isinstance(target, CudaTarget | TensorRtTarget) else "KIND_CPU",
        parameters=decoding.to_parameters(),
        warm_ups=tuple(WarmUp(batch_size=size, tensors={"TEXT": (TEXT, "text")}) for size in warm_up_sizes(serving)),
        response_cache=serving.response_cache_mb > 0,
    )
    files = (
        {file: code / file for file in (*SERVING_CODE, *ENGINES[target.runtime])}
        | {"length_groups.py": Path(grouping.__file__)}
        | graph_files(target, graphs)
        | {"tokenizer.json": checkpoint.tokenizer}
    )
    return [TritonModel(config=config, files=files, warm_up={"text": serialise_texts([warm_up["text"]])})]


def beams_refusal(target: Target) -> str | None:
    """Says why a target's runtime searches no beams; None where it does."""
    if target.runtime in SEARCHES_BEAMS:
        return None
    able = " and ".join(SEARCHES_BEAMS)
    return f"Only {able} supports beam search. Use it, or set model.generation.num_beams = 1 in workload.toml."


def _check_served(decoding: Settings, serving: Serving, target: Target) -> None:
    """Raises `UsageError` for decoding that the engine or the response cache does not support."""
    served = decoding.generation
    if served.num_beams > 1 and (reason := beams_refusal(target)):
        raise UsageError(
            f"num_beams: the checkpoint or model.generation asks for {served.num_beams} beams, which "
            f"'{target.runtime}' does not search. {reason}"
        )
    if serving.response_cache_mb and ({*served.settable} - {"guided"} or served.do_sample):
        raise UsageError(
            "serving.response_cache_mb: Triton's cache knows a request only by its inputs, but requests to this model "
            f"may set {', '.join(served.settable)}. Set response_cache_mb = 0 in workload.toml, or leave these out of "
            "the checkpoint's generation_config.json."
        )


def _tokens(checkpoint: Checkpoint, key: str) -> tuple[int, ...]:
    value = checkpoint.config.get(key)
    ids = tuple(value) if isinstance(value, list) else (value,)
    if not ids or not all(isinstance(token, int) for token in ids):
        raise broken(
            checkpoint.folder / "config.json",
            f"{key}: got {json.dumps(value)}, but decoding needs a token id (an integer).",
        )
    return ids
