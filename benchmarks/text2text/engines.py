"""The engines of latency.py. Their groups are a model and a device, such as "t5-small cpu"."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import peers
from benchmarks.harness import BASELINE, Answer
from benchmarks.text2text.models import Call, Setup, make_checkpoint

SEQUENCES = "ModelForSeq2SeqLM"
THREADS = int(os.environ.get("OMP_NUM_THREADS", 1))
"""Threads of an engine's process."""
TRITON = ", triton"
"""Suffix of an engine behind Triton."""
TENSORRT = "ours tensorrt"
"""Prefix of an engine on TensorRT; its precision follows."""
GUIDED = "guided"
GPU = "cuda"
"""Torch's name of the device `cuda`."""
ENCODE = "encode "
"""Prefix of a call that runs the encoder only. Engines whose encoder is not separate answer None."""


@dataclass(frozen=True)
class Place:
    """Where an engine finds its model, and the device that it runs on."""

    name: str
    folder: Path
    device: str

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def torch_device(self) -> str:
        return GPU if self.device == "cuda" else self.device

    @property
    def precision(self) -> str:
        return self.name.removesuffix(TRITON).split()[-1]

    @property
    def compiled(self) -> Path:
        return self.folder / "compiled" / self.precision

    @property
    def compiled_for_beams(self) -> Path:
        return self.folder / "compiled for beams" / self.precision


def answering(
    setup: Setup, answer: Callable[[Call], list[list[int]]], encode: Callable[[Call], object] | None = None
) -> Answer:
    """Returns an engine's answer to a call, without end tokens. `encode` runs its encoder, if it is separate."""

    def answer_call(name: str) -> Any:
        if not name.startswith(ENCODE):
            call = setup.calls[name]
            dropped = (setup.end, setup.pad) if call.ends else ()
            return [[token for token in row if token not in dropped] for row in answer(call)]
        if encode:
            encode(setup.calls[name.removeprefix(ENCODE)])
        return "runs" if encode else None

    return answer_call


def _make_ours(name: str, group: str, checkpoint: Path, made: Path) -> None:
    """Makes our graph of a precision, or the plans of an engine on TensorRT."""
    place = Place(name, made.parent, group.split()[1])
    if name.startswith(TENSORRT):
        _build_plans(place, made)
    elif not place.compiled.exists():
        place.compiled.mkdir(parents=True)
        (_trace if place.device == "cuda" else _compile)(place, Setup.read(checkpoint))
        shutil.copyfile(checkpoint / "tokenizer.json", place.compiled / "tokenizer.json")


def _limits(setup: Setup) -> dict[str, Any]:
    return {"max_input_tokens": setup.max_input_tokens, "max_output_tokens": setup.max_output_tokens}


def _compile(place: Place, setup: Setup) -> None:
    """Compiles a decoder for one beam, and another for several if there is such a call: int8 differs."""
    from model_build.text2text import export, optimise

    portable, precision = place.folder / "portable", cast(Any, place.precision)
    if not portable.exists():
        portable.mkdir()
        export.export(export.load(place.checkpoint), portable, **_limits(setup))
    optimise.optimise(portable, place.compiled, precision)
    if any(call.beams > 1 for call in setup.calls.values()):
        place.compiled_for_beams.mkdir(parents=True)
        optimise.optimise(portable, place.compiled_for_beams, precision, beams=True)
        shutil.copyfile(place.checkpoint / "tokenizer.json", place.compiled_for_beams / "tokenizer.json")


def _trace(place: Place, setup: Setup) -> None:
    from model_build.text2text import export

    export.trace(export.load(place.checkpoint), place.compiled, **_limits(setup), half=place.precision == "fp16")


def _build_plans(place: Place, made: Path) -> None:
    """Builds the encoder and the decoder as `model_build` does. Raises `Unavailable` if the builder fails."""
    from model_build.compile_inputs import CompileInputs
    from model_build.tensorrt.engines import compile_graphs
    from model_build.tensorrt.trtexec import Toolchain
    from model_build.text2text.compile import typed_graphs
    from workloads import Serving, TensorRtTarget

    setup = Setup.read(place.checkpoint)
    target = {"runtime": "tensorrt", "precision": place.precision, "instance_types": ("ml.g4dn.xlarge",)}
    inputs = CompileInputs(
        workload="text2text",
        target_name="tensorrt",
        model=_model(setup, {}),
        target=TensorRtTarget.model_validate(target),
        checkpoint=_checkpoint(place.checkpoint),
        batches=Serving(max_batch_size=1),
        calibration=tuple({"text": call.text} for call in setup.calls.values()),
        timing_caches=place.folder / "timing_caches",
    )
    toolchain = Toolchain.here()
    compile_graphs(inputs, toolchain, typed_graphs(inputs, made / "typed", made, print), made, print)


def _torch(place: Place) -> Answer:
    model = peers.load_torch(f"Auto{SEQUENCES}", place.name, place.folder, THREADS, place.torch_device)
    # `generate` compiles its decoder for a static cache.
    options = {"cache_implementation": "static"} if "compiled" in place.name else {}
    return _generating(model, Setup.read(place.checkpoint), **options)


def _optimum(place: Place) -> Answer:
    model = peers.load_optimum(f"ORT{SEQUENCES}", place.folder / place.name, THREADS)
    return _generating(model, Setup.read(place.checkpoint))


def _openvino(place: Place) -> Answer:
    model = peers.load_openvino(f"OV{SEQUENCES}", place.name, place.folder, THREADS)
    return _generating(model, Setup.read(place.checkpoint))


def _generating(model: Any, setup: Setup, **options: str) -> Answer:
    import torch

    def answer(call: Call) -> list[list[int]]:
        suppressed: dict[str, Any] = {} if call.ends else {"suppress_tokens": [setup.end]}
        given = {"num_beams": call.beams, "max_new_tokens": call.tokens, **suppressed, **options}
        return peers.generate(model, call.rows, **given)

    def encode(call: Call) -> None:
        source = torch.tensor(call.rows, device=model.device)
        with torch.inference_mode():
            model.get_encoder()(input_ids=source, attention_mask=torch.ones_like(source))
            if model.device.type == "cuda":
                torch.cuda.synchronize()

    return answering(setup, answer, encode)


def _ctranslate2(place: Place) -> Answer:
    translate, setup = peers.load_ctranslate2(place.name, place.folder, THREADS), Setup.read(place.checkpoint)

    def answer(call: Call) -> list[list[int]]:
        least = {} if call.ends else {"min_decoding_length": call.tokens}
        return translate(call.rows, beam_size=call.beams, max_decoding_length=call.tokens, **least)

    return answering(setup, answer)


def _ours(place: Place) -> Answer:
    from tokenizers import Tokenizer

    from containers.text2text.generation import Generation
    from containers.text2text.generator import TextGenerator, pad

    setup, engine, extra = Setup.read(place.checkpoint), _gpu_engine(place), _guided(place)
    if engine:
        tokenizer = Tokenizer.from_file(str(place.checkpoint / "tokenizer.json"))
        generator = TextGenerator(tokenizer, engine, _settings(setup))
    else:
        generator = TextGenerator.load(place.compiled, _settings(setup))
    for_beams = place.compiled_for_beams
    beams = TextGenerator.load(for_beams, _settings(setup)) if for_beams.exists() else None

    def answer(call: Call) -> list[list[int]]:
        suppressed: dict[str, Any] = {} if call.ends else {"suppress_tokens": (setup.end,)}
        generation = Generation(num_beams=call.beams, **suppressed, **extra)
        decoding = beams if beams and call.beams > 1 else generator
        return [row.tolist() for row in decoding.generate(call.rows, generation)]

    def encode(call: Call) -> None:
        state: Any = generator.engine.encode(*pad(call.rows, setup.pad), 0)
        if engine:
            state.program.wait()

    return answering(setup, answer, encode)


def _guided(place: Place) -> dict[str, Any]:
    return {"guided": "input"} if GUIDED in place.name else {}


def _gpu_engine(place: Place) -> Any:
    """Returns our engine on a GPU, or None on CPU."""
    if place.name.startswith(TENSORRT):
        from containers.text2text import tensorrt_engine

        return tensorrt_engine.load(place.folder / place.name)
    if place.device == "cpu":
        return None
    from containers.text2text import torch_engine

    guided = bool(_guided(place))
    return torch_engine.load(place.compiled, place.torch_device, most_rows=1, longest=64, guided=guided)


def _triton(place: Place) -> Answer:
    from tokenizers import Tokenizer

    from local_aws.process.triton import TritonServer

    setup = Setup.read(place.checkpoint)
    repository = place.folder / f"triton-{place.name.removesuffix(TRITON).replace(' ', '-')}"  # its path has no space
    _lay_out(repository, place, setup)
    tokenizer = Tokenizer.from_file(str(place.checkpoint / "tokenizer.json"))
    server = TritonServer.start(repository, default_model="model", log_file=repository.with_suffix(".log"))

    def answer(call: Call) -> list[list[int]]:
        tensor = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [call.text]}
        body = json.dumps({"inputs": [tensor]}).encode()
        reply = json.loads(server.invoke(body, {"Content-Type": "application/json"}).body)
        return [tokenizer.encode(reply["outputs"][0]["data"][0]).ids]

    return answering(setup, answer)


def _model(setup: Setup, generation: Mapping[str, Any]) -> Any:
    from workloads import TextToText

    document = {"task": "text2text-generation", "checkpoint": "./checkpoint", "generation": generation}
    return TextToText.model_validate(document | _limits(setup))


def _checkpoint(folder: Path) -> Any:
    from model_build.checkpoint import Checkpoint

    config = json.loads((folder / "config.json").read_text("utf-8"))
    return Checkpoint(folder=folder, encoder=folder, config=config, encoder_config={}, sha256="")


def _lay_out(repository: Path, place: Place, setup: Setup) -> None:
    from model_build.text2text.repository import triton_models
    from model_build.triton.repository import contents, lay_out
    from workloads import OnnxRuntimeTarget, Serving

    target, serving = OnnxRuntimeTarget(runtime="onnxruntime", threads=THREADS), Serving(max_batch_size=1)
    checkpoint, text = _checkpoint(place.checkpoint), next(iter(setup.calls.values())).text
    model = _model(setup, _guided(place))
    models = triton_models("model", model, serving, target, checkpoint, {"text": text}, place.compiled)
    lay_out(repository, contents(models))


def _settings(setup: Setup) -> Any:
    from containers.text2text.settings import Settings

    return Settings(
        **_limits(setup),
        decoder_start_token_id=setup.start,
        eos_token_ids=(setup.end,),
        pad_token_id=setup.pad,
        threads=THREADS,
    )


HUGGING_FACE = (BASELINE, "huggingface fp16", "huggingface compiled fp32", "huggingface compiled fp16")
ENGINES: dict[str, Mapping[str, Callable[[Place], Answer]]] = {
    "cpu": {
        **dict.fromkeys((BASELINE, "huggingface compiled fp32"), _torch),
        **dict.fromkeys(("optimum fp32", "optimum O2 fp32"), _optimum),
        **dict.fromkeys(("openvino fp32", "openvino bf16", "openvino int8"), _openvino),
        **dict.fromkeys(("ctranslate2 fp32", "ctranslate2 int8"), _ctranslate2),
        **dict.fromkeys(("ours fp32", "ours int8", "ours guided int8"), _ours),
        **dict.fromkeys(("ours fp32, triton", "ours int8, triton", "ours guided int8, triton"), _triton),
    },
    "cuda": {
        **dict.fromkeys(HUGGING_FACE, _torch),
        **dict.fromkeys(("ours fp32", "ours fp16", "ours guided fp32", "ours guided fp16"), _ours),
        **dict.fromkeys((f"{TENSORRT} {precision}" for precision in ("fp32", "fp16", "int8")), _ours),
    },
}


def _load(engine: Callable[[Place], Answer], name: str, group: str, folder: Path) -> Answer:
    return engine(Place(name, folder, group.split()[1]))


def run() -> None:
    loads = {name: partial(_load, engine) for of in ENGINES.values() for name, engine in of.items()}
    peers.dispatch(lambda: 2, loads, checkpoint=make_checkpoint, ours=_make_ours, optimum=SEQUENCES)


if __name__ == "__main__":
    run()
