"""The engines of latency.py. Their groups are a shape and a device, such as "t5-small cpu"."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import harness, peers
from benchmarks.harness import BASELINE

SHAPES: dict[str, dict[str, int]] = {
    "t5-small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "t5-base": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
}
VOCABULARY = 32128
INPUT_TOKENS, OUTPUT_TOKENS = 9, 11
CASE = "case.json"
CANDIDATES = 512
BATCH = 32
SPECIAL = {"pad_token": 0, "eos_token": 1, "unk_token": 2}
OPTIMUM = "ORTModelForSeq2SeqLM"
THREADS = int(os.environ.get("OMP_NUM_THREADS", 1))
"""Threads of an engine's process."""
TRITON = ", triton"
"""Suffix of an engine behind Triton."""
TENSORRT = "ours tensorrt"
"""Prefix of an engine on TensorRT; its precision follows."""
GPU = "cuda"
"""Torch's name of the device `cuda`."""
LIMITS: dict[str, Any] = {"max_input_tokens": 64, "max_output_tokens": OUTPUT_TOKENS}


@dataclass(frozen=True)
class LoadedEngine:
    """`answer` returns the output tokens. `encode` runs the encoder, if it can be run by itself."""

    answer: Callable[[], list[int]]
    encode: Callable[[], object] | None = None

    def __call__(self, part: str) -> Any:
        if part == "has encoder":
            return self.encode is not None
        if part == "encode" and self.encode:
            self.encode()
            return None
        return self.answer()


@dataclass(frozen=True)
class Place:
    """Where an engine finds its model, and the device that it runs on."""

    name: str
    folder: Path
    device: str

    @property
    def case(self) -> dict[str, Any]:
        """Source and output tokens, and the number of weights."""
        return dict(json.loads((self.folder / "checkpoint" / CASE).read_text("utf-8")))

    @property
    def torch_device(self) -> str:
        return GPU if self.device == "cuda" else self.device

    @property
    def precision(self) -> str:
        return self.name.removesuffix(TRITON).split()[-1]


def make_checkpoint(group: str, folder: Path) -> None:
    """Writes the checkpoint, and as its case a source and what Hugging Face `generate` makes of it."""
    peers.write_tokenizer(folder, VOCABULARY, SPECIAL, ends=True)
    model = make_model(group.split()[0])
    model.save_pretrained(folder)
    source, output = _clearest(model)
    (folder / CASE).write_text(json.dumps({"source": source, "output": output, **_matrix_weights(model)}))


def make_model(shape: str) -> Any:
    """Returns T5 with seeded random weights, whose outputs vary.

    As initialised, a tied T5 repeats its last token. Here the last feed-forward layer outweighs the residual, so the
    next token is a random function of the last one and of the attended ones. `_clearest` takes a source whose output
    neither ends nor repeats a token, so that rounding to int8 changes no token.
    """
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    make_config: Any = T5Config
    model = T5ForConditionalGeneration(
        make_config(vocab_size=VOCABULARY, decoder_start_token_id=0, **SHAPES[shape])
    ).eval()
    with torch.no_grad():
        model.shared.weight.mul_(3)
        model.decoder.block[-1].layer[2].DenseReluDense.wo.weight.mul_(1000)
    return model


def _clearest(model: Any) -> tuple[list[int], list[int]]:
    import torch

    sources: Any = torch.randint(3, VOCABULARY, (CANDIDATES, INPUT_TOKENS))
    sources[:, -1] = model.config.eos_token_id
    best: tuple[float, list[int], list[int]] = (0.0, [], [])
    for batch in sources.split(BATCH):
        with torch.inference_mode():
            made = model.generate(
                input_ids=batch,
                attention_mask=torch.ones_like(batch),
                max_new_tokens=OUTPUT_TOKENS,
                do_sample=False,
                output_logits=True,
                return_dict_in_generate=True,
            )
        first, second = torch.stack(made.logits, 1).topk(2, -1).values.unbind(-1)
        for source, output, margin in zip(batch, made.sequences[:, 1:], (first - second).amin(1), strict=True):
            tokens = output.tolist()
            varied = len(set(tokens)) == OUTPUT_TOKENS and min(tokens) > 2
            if varied and margin.item() > best[0]:
                best = (margin.item(), source.tolist(), tokens)
    if not best[1]:
        raise SystemExit("No source of the candidates gives an output without an end or a repetition.")
    return best[1], best[2]


def _matrix_weights(model: Any) -> dict[str, int]:
    """Counts the weights that the source and every output token are multiplied with; embeddings are looked up."""
    sizes = {name: w.numel() for name, w in model.named_parameters() if w.dim() == 2 and "relative" not in name}
    of_source = ("encoder.", "EncDecAttention.k", "EncDecAttention.v")
    source = sum(size for name, size in sizes.items() if any(part in name for part in of_source))
    # The shared embedding is the head as well: read whole for each token.
    return {"encoder_weights": source, "decoder_weights": sum(sizes.values()) - source}


def _make_ours(name: str, group: str, checkpoint: Path, made: Path) -> None:
    """Makes the graphs of all precisions, or the plans of one engine on TensorRT."""
    if name.startswith(TENSORRT):
        _build_plans(name.split()[-1], checkpoint, made)
    else:
        (_trace if group.endswith("cuda") else _compile)(checkpoint, made)


def _compile(checkpoint: Path, made: Path) -> None:
    from model_build.text2text import export, optimise

    (portable := made / "portable").mkdir()
    export.export(export.load(checkpoint), portable, **LIMITS)
    for precision in ("fp32", "int8"):
        (compiled := made / precision).mkdir()
        optimise.optimise(portable, compiled, precision)
        shutil.copyfile(checkpoint / "tokenizer.json", compiled / "tokenizer.json")


def _trace(checkpoint: Path, made: Path) -> None:
    from model_build.text2text import export

    for precision in ("fp32", "fp16"):
        (folder := made / precision).mkdir()
        export.trace(export.load(checkpoint), folder, **LIMITS, half=precision == "fp16")


def _build_plans(precision: Any, folder: Path, made: Path) -> None:
    """Builds the encoder and the decoder as `model_build` does. Raises `Unavailable` if the builder fails."""
    from model_build.compile_inputs import CompileInputs
    from model_build.tensorrt.trtexec import Toolchain
    from model_build.text2text.compile import build_engines
    from workloads import Serving, TensorRtTarget

    inputs = CompileInputs(
        workload="t5_latency",
        target_name="tensorrt",
        model=_model(),
        target=TensorRtTarget(runtime="tensorrt", precision=precision, instance_types=("ml.g4dn.xlarge",)),
        checkpoint=_checkpoint(folder),
        batches=Serving(max_batch_size=1),
        calibration=({"text": _text(folder.parent)},),
        timing_caches=made.parent / "timing_caches",
    )
    build_engines(inputs, Toolchain.here(), made, made, print)


def _hugging_face(place: Place) -> LoadedEngine:
    import torch
    from transformers import T5ForConditionalGeneration

    torch.set_num_threads(THREADS)
    dtype = {"fp32": torch.float32, "fp16": torch.float16}[place.precision]
    model: Any = T5ForConditionalGeneration.from_pretrained(place.folder / "checkpoint", dtype=dtype)
    # On a GPU `generate` compiles its decoder for a static cache.
    options = {"cache_implementation": "static"} if "compiled" in place.name else {}
    return _generating(model.to(place.torch_device).eval(), place.case, **options)


def _optimum(place: Place) -> LoadedEngine:
    return _generating(peers.load_optimum(OPTIMUM, place.folder / place.name, THREADS), place.case)


def _generating(model: Any, case: dict[str, Any], **options: str) -> LoadedEngine:
    import torch

    rows, tokens = [case["source"]], len(case["output"])
    source = torch.tensor(rows, device=model.device)

    def encode() -> None:
        with torch.inference_mode():
            model.get_encoder()(input_ids=source, attention_mask=torch.ones_like(source))
            _wait_for(model.device.type)

    return LoadedEngine(lambda: peers.generate(model, rows, max_new_tokens=tokens, **options)[0], encode)


def _wait_for(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def _ctranslate2(place: Place) -> LoadedEngine:
    translate = peers.load_ctranslate2(place.name, place.folder, THREADS)
    rows, longest = [place.case["source"]], len(place.case["output"])
    return LoadedEngine(lambda: translate(rows, beam_size=1, max_decoding_length=longest)[0])


def _ours(place: Place, engine: Any = None) -> LoadedEngine:
    """Loads the engine for CPU if none is given."""
    from tokenizers import Tokenizer

    from containers.text2text.generator import TextGenerator, pad

    if engine:
        tokenizer = Tokenizer.from_file(str(place.folder / "checkpoint/tokenizer.json"))
        generator = TextGenerator(tokenizer, engine, _settings(place))
    else:
        generator = TextGenerator.load(place.folder / "compiled" / place.precision, _settings(place))
    source = [place.case["source"]]
    padded = pad(source, 0)

    def encode() -> None:
        state: Any = generator.engine.encode(*padded, 0)
        if engine:
            state.program.wait()

    return LoadedEngine(lambda: list(generator.generate(source)[0].tolist()), encode)


def _ours_cuda(place: Place) -> LoadedEngine:
    from containers.text2text import torch_engine

    folder = place.folder / "compiled" / place.precision
    return _ours(place, torch_engine.load(folder, place.torch_device, most_rows=1, longest=64))


def _ours_tensorrt(place: Place) -> LoadedEngine:
    from containers.text2text import tensorrt_engine

    return _ours(place, tensorrt_engine.load(place.folder / place.name))


def _triton(place: Place) -> LoadedEngine:
    from local_aws.process.triton import TritonServer

    repository = place.folder / f"triton-{place.precision}"
    _lay_out(repository, place)
    tokens = peers.vocabulary(place.folder)
    tensor = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [_text(place.folder)]}
    body = json.dumps({"inputs": [tensor]}).encode()
    server = TritonServer.start(repository, default_model="t5", log_file=place.folder / f"{repository.name}.log")

    def answer() -> list[int]:
        reply = json.loads(server.invoke(body, {"Content-Type": "application/json"}).body)
        return [tokens[word] for word in reply["outputs"][0]["data"][0].split()]

    return LoadedEngine(answer)


def _text(folder: Path) -> str:
    """Returns the source of the case as text."""
    words = {token: word for word, token in peers.vocabulary(folder).items()}
    source = json.loads((folder / "checkpoint" / CASE).read_text("utf-8"))["source"]
    return " ".join(words[token] for token in source[:-1])


def _model() -> Any:
    from workloads import TextToText

    return TextToText(task="text2text-generation", checkpoint="./checkpoint", **LIMITS)


def _checkpoint(folder: Path) -> Any:
    from model_build.checkpoint import Checkpoint

    config = json.loads((folder / "config.json").read_text("utf-8"))
    return Checkpoint(folder=folder, encoder=folder, config=config, encoder_config={}, sha256="")


def _lay_out(repository: Path, place: Place) -> None:
    from model_build.text2text.repository import triton_models
    from model_build.triton.repository import contents, lay_out
    from workloads import OnnxRuntimeTarget, Serving

    target = OnnxRuntimeTarget(runtime="onnxruntime", threads=THREADS)
    checkpoint, graphs = _checkpoint(place.folder / "checkpoint"), place.folder / "compiled" / place.precision
    models = triton_models("t5", _model(), Serving(max_batch_size=1), target, checkpoint, {"text": "w3"}, graphs)
    lay_out(repository, contents(models))


def _settings(place: Place) -> Any:
    from containers.text2text.settings import Settings

    return Settings(**LIMITS, decoder_start_token_id=0, eos_token_ids=(1,), pad_token_id=0, threads=THREADS)


def _reading(place: Place) -> LoadedEngine:
    """Reads as much memory as an answer has to. No engine can be faster."""
    import torch

    torch.set_num_threads(THREADS)
    case, bytes_each = place.case, {"fp32": 4, "fp16": 2, "int8": 1}[place.precision]
    encoder, decoder = (
        torch.ones(case[f"{part}_weights"] * bytes_each // 8, dtype=torch.int64, device=place.torch_device)
        for part in ("encoder", "decoder")
    )

    def read() -> list[int]:
        return [int(memory.sum().item()) for memory in (encoder, *[decoder] * len(case["output"]))]

    return LoadedEngine(read)


EAGER = (BASELINE, "huggingface fp16", "huggingface compiled fp32", "huggingface compiled fp16")
ENGINES: dict[str, Mapping[str, Callable[[Place], LoadedEngine]]] = {
    "cpu": {
        BASELINE: _hugging_face,
        "optimum fp32": _optimum,
        **dict.fromkeys(("ctranslate2 fp32", "ctranslate2 int8"), _ctranslate2),
        **dict.fromkeys(("ours fp32", "ours int8"), _ours),
        **dict.fromkeys(("ours fp32, triton", "ours int8, triton"), _triton),
    },
    "cuda": {
        **dict.fromkeys(EAGER, _hugging_face),
        **dict.fromkeys(("ours fp32", "ours fp16"), _ours_cuda),
        **dict.fromkeys((f"{TENSORRT} {precision}" for precision in ("fp32", "fp16", "int8")), _ours_tensorrt),
    },
}
READING = dict.fromkeys(("reading fp32", "reading fp16", "reading int8"), _reading)


def _load(engine: Callable[[Place], LoadedEngine], name: str, group: str, folder: Path) -> harness.Answer:
    return engine(Place(name, folder, group.split()[1]))


def run() -> None:
    loads = {name: partial(_load, engine) for of in (*ENGINES.values(), READING) for name, engine in of.items()}
    peers.dispatch(lambda: 2, loads, checkpoint=make_checkpoint, ours=_make_ours, optimum=OPTIMUM)


if __name__ == "__main__":
    run()
