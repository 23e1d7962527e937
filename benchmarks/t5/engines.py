"""The engines of latency.py. Each is made once from the checkpoint and serves turns in a process of its own.

python benchmarks/t5/engines.py --make NAME FOLDER SHAPE DEVICE
python benchmarks/t5/engines.py --serve NAME FOLDER DEVICE THREADS
"""

import contextlib
import json
import logging
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import harness
from benchmarks.harness import BASELINE

SHAPES: dict[str, dict[str, int]] = {
    "t5-small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "t5-base": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
}
VOCABULARY = 32128
INPUT_TOKENS, OUTPUT_TOKENS = 9, 11
CANDIDATES = 512
BATCH = 32
SPECIAL = {"pad_token": 0, "eos_token": 1, "unk_token": 2}
Device = Literal["cpu", "cuda"]
TRITON = ", triton"
"""Suffix of an engine behind Triton."""
LIMITS: dict[str, Any] = {"max_input_tokens": 64, "max_output_tokens": OUTPUT_TOKENS}
CONFIG_PBTXT = """\
name: "t5"
backend: "python"
max_batch_size: 1
input [{ name: "TEXT" data_type: TYPE_STRING dims: [1] }]
output [{ name: "CORRECTED" data_type: TYPE_STRING dims: [1] }]
instance_group [{ count: 1 kind: KIND_CPU }]
"""


@dataclass(frozen=True)
class LoadedEngine:
    """`answer` returns the output tokens. `encode` runs the encoder, if it can be run by itself."""

    answer: Callable[[], list[int]]
    encode: Callable[[], None] | None = None


@dataclass(frozen=True)
class Place:
    """Where an engine finds its model, and how it runs."""

    name: str
    folder: Path
    device: Device
    threads: int

    @property
    def case(self) -> dict[str, Any]:
        """Source and output tokens, and the number of weights."""
        return dict(json.loads((self.folder / "case.json").read_text("utf-8")))

    @property
    def precision(self) -> str:
        return self.name.removesuffix(TRITON).split()[-1]

    @property
    def words(self) -> dict[str, int]:
        """Token ids by word."""
        return dict(json.loads((self.folder / "checkpoint/tokenizer.json").read_text("utf-8"))["model"]["vocab"])


def make_checkpoint(folder: Path, shape: str) -> dict[str, Any]:
    """Writes the checkpoint, and returns the source's tokens and what Hugging Face `generate` makes of them."""
    folder.mkdir(parents=True)
    harness.write_tokenizer(folder, VOCABULARY, SPECIAL, ends=True)
    model = make_model(shape)
    model.save_pretrained(folder)
    source, output = _clearest(model)
    encoder_weights, decoder_weights = _matrix_weights(model)
    weights = {"encoder_weights": encoder_weights, "decoder_weights": decoder_weights}
    return {"source": source, "output": output, **weights}


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


def _matrix_weights(model: Any) -> tuple[int, int]:
    """Counts the weights that the source and every output token are multiplied with; embeddings are looked up."""
    sizes = {name: w.numel() for name, w in model.named_parameters() if w.dim() == 2 and "relative" not in name}
    of_source = ("encoder.", "EncDecAttention.k", "EncDecAttention.v")
    source = sum(size for name, size in sizes.items() if any(part in name for part in of_source))
    return source, sum(sizes.values()) - source  # The shared embedding is the head as well: read whole for each token.


def make(name: str, folder: Path, shape: str, device: Device) -> None:
    """Makes the checkpoint, our compiled graphs or another project's model."""
    logging.disable(logging.INFO)  # a line for each quantised node
    made, checkpoint = folder / name, folder / "checkpoint"
    if name == "checkpoint":
        (folder / "case.json").write_text(json.dumps(make_checkpoint(checkpoint, shape)))
        return
    made.mkdir()
    if name.startswith("ctranslate2"):
        harness.convert_to_ctranslate2(name, checkpoint, made)
    elif name.startswith("optimum"):
        from optimum.onnxruntime import ORTModelForSeq2SeqLM

        ORTModelForSeq2SeqLM.from_pretrained(checkpoint, export=True).save_pretrained(made)
    elif device == "cuda":
        _trace(checkpoint, made)
    else:
        _compile(checkpoint, made)


def _compile(checkpoint: Path, made: Path) -> None:
    from model_build.text2text import export, optimise

    (portable := made / "portable").mkdir()
    export.export(export.load(checkpoint), portable, **LIMITS)
    for precision in ("fp32", "int8"):
        (compiled := made / precision).mkdir()
        optimise.optimise(portable, compiled, precision)
        shutil.copyfile(checkpoint / "tokenizer.json", compiled / "tokenizer.json")


def _trace(checkpoint: Path, made: Path) -> None:
    import onnx

    from model_build.tensorrt.precision import T5_CACHES, to_fp16
    from model_build.text2text import export

    for precision in ("fp32", "fp16"):
        folder = made / precision
        folder.mkdir()
        model = export.load(checkpoint)
        export.export(model, folder, **LIMITS, static=True)
        if precision == "fp16":
            for file in folder.glob("*.onnx"):
                onnx.save(to_fp16(onnx.load(file), half=T5_CACHES), file)
        export.trace(model, folder, **LIMITS, half=precision == "fp16")


def _hugging_face(place: Place) -> LoadedEngine:
    import torch
    from transformers import T5ForConditionalGeneration

    torch.set_num_threads(place.threads)
    dtype = {"fp32": torch.float32, "fp16": torch.float16}[place.precision]
    model: Any = T5ForConditionalGeneration.from_pretrained(place.folder / "checkpoint", dtype=dtype)
    # On a GPU `generate` compiles its decoder for a static cache.
    options = {"cache_implementation": "static"} if "compiled" in place.name else {}
    return _generate(model.to(place.device).eval(), place.case, options)


def _optimum(place: Place) -> LoadedEngine:
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    options = harness.onnx_options(place.threads)
    model = ORTModelForSeq2SeqLM.from_pretrained(place.folder / place.name, session_options=options)
    return _generate(model, place.case, {})


def _generate(model: Any, case: dict[str, Any], options: dict[str, Any]) -> LoadedEngine:
    import torch

    source = torch.tensor([case["source"]], device=model.device)
    mask = torch.ones_like(source)
    greedy = {"attention_mask": mask, "do_sample": False, "max_new_tokens": len(case["output"]), **options}

    def answer() -> list[int]:
        with torch.inference_mode():
            return list(model.generate(input_ids=source, **greedy)[0, 1:].tolist())

    def encode() -> None:
        with torch.inference_mode():
            model.get_encoder()(input_ids=source, attention_mask=mask)
            _wait_for(model.device.type)

    return LoadedEngine(answer, encode)


def _wait_for(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def _ctranslate2(place: Place) -> LoadedEngine:
    import ctranslate2

    translator = ctranslate2.Translator(str(place.folder / place.name), device="cpu", intra_threads=place.threads)
    words = place.words
    by_token = {token: word for word, token in words.items()}
    source = [[by_token[token] for token in place.case["source"]]]
    longest = len(place.case["output"])

    def answer() -> list[int]:
        (result,) = translator.translate_batch(source, beam_size=1, max_decoding_length=longest)
        return [words[word] for word in result.hypotheses[0]]

    return LoadedEngine(answer)


def _ours(place: Place) -> LoadedEngine:
    from tokenizers import Tokenizer

    from containers.text2text.generator import TextGenerator, pad

    folder = place.folder / "compiled" / place.precision
    if place.device == "cuda":
        from containers.text2text import torch_engine

        engine = torch_engine.load(folder, place.device, most_rows=1, longest=64)
        tokenizer = Tokenizer.from_file(str(place.folder / "checkpoint/tokenizer.json"))
        generator = TextGenerator(tokenizer, engine, _settings(place))
    else:
        generator = TextGenerator.load(folder, _settings(place))
    source = [place.case["source"]]
    padded = pad(source, 0)

    def encode() -> None:
        generator.engine.encode(*padded, 0)
        _wait_for(place.device)

    return LoadedEngine(lambda: list(generator.generate(source)[0].tolist()), encode)


def _triton(place: Place) -> LoadedEngine:
    from local_aws.process.triton import TritonServer

    repository = place.folder / f"triton-{place.precision}"
    _lay_out(repository, place)
    words = place.words
    by_token = {token: word for word, token in words.items()}
    text = " ".join(by_token[token] for token in place.case["source"][:-1])
    tensor = {"name": "TEXT", "shape": [1, 1], "datatype": "BYTES", "data": [text]}
    body = json.dumps({"inputs": [tensor]}).encode()
    server = TritonServer.start(repository, default_model="t5", log_file=place.folder / f"{repository.name}.log")
    STACK.enter_context(server)

    def answer() -> list[int]:
        reply = json.loads(server.invoke(body, {"Content-Type": "application/json"}).body)
        return [words[word] for word in reply["outputs"][0]["data"][0].split()]

    return LoadedEngine(answer)


def _lay_out(repository: Path, place: Place) -> None:
    """Lays out the serving code and graphs as the build does."""
    import containers.text2text

    version = repository / "t5" / "1"
    version.mkdir(parents=True)
    compiled = place.folder / "compiled" / place.precision
    for file in [*compiled.iterdir(), *Path(containers.text2text.__path__[0]).glob("*.py")]:
        if file.name != "__init__.py" and file.is_file():
            shutil.copyfile(file, version / file.name)
    settings = _settings(place).to_parameters().items()
    parameters = "".join(f'parameters {{ key: "{k}" value: {{ string_value: "{v}" }} }}\n' for k, v in settings)
    (repository / "t5" / "config.pbtxt").write_text(CONFIG_PBTXT + parameters)


def _settings(place: Place) -> Any:
    from containers.text2text.settings import Settings

    return Settings(**LIMITS, decoder_start_token_id=0, eos_token_ids=(1,), pad_token_id=0, threads=place.threads)


def _reading(place: Place) -> LoadedEngine:
    """Reads as much memory as an answer has to. No engine can be faster."""
    import torch

    torch.set_num_threads(place.threads)
    case, bytes_each = place.case, {"fp32": 4, "fp16": 2, "int8": 1}[place.precision]
    encoder, decoder = (
        torch.ones(case[f"{part}_weights"] * bytes_each // 8, dtype=torch.int64, device=place.device)
        for part in ("encoder", "decoder")
    )

    def read() -> list[int]:
        return [int(memory.sum().item()) for memory in (encoder, *[decoder] * len(case["output"]))]

    return LoadedEngine(read)


EAGER = (BASELINE, "huggingface fp16", "huggingface compiled fp32", "huggingface compiled fp16")
ENGINES: dict[Device, Mapping[str, Callable[[Place], LoadedEngine]]] = {
    "cpu": {
        BASELINE: _hugging_face,
        "optimum fp32": _optimum,
        **dict.fromkeys(("ctranslate2 fp32", "ctranslate2 int8"), _ctranslate2),
        **dict.fromkeys(("ours fp32", "ours int8"), _ours),
        **dict.fromkeys(("ours fp32, triton", "ours int8, triton"), _triton),
    },
    "cuda": {**dict.fromkeys(EAGER, _hugging_face), **dict.fromkeys(("ours fp32", "ours fp16"), _ours)},
}
STACK = contextlib.ExitStack()


def _serve(place: Place) -> harness.Answer:
    loaded = (_reading if place.name.startswith("reading") else ENGINES[place.device][place.name])(place)

    def answer(part: str) -> Any:
        if part == "has encoder":
            return loaded.encode is not None
        return loaded.encode() if part == "encode" and loaded.encode else loaded.answer()

    return answer


if __name__ == "__main__":
    if sys.argv[1] == "--make":
        make(sys.argv[2], Path(sys.argv[3]), sys.argv[4], "cuda" if sys.argv[5] == "cuda" else "cpu")
    else:
        _, _, name, folder, device, threads = sys.argv
        place = Place(name, Path(folder), "cuda" if device == "cuda" else "cpu", int(threads))
        with STACK:
            harness.answer_turns(lambda: _serve(place))
