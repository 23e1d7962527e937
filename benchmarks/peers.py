"""Models of other projects, made and loaded for engines: Optimum, OpenVINO, CTranslate2 and Hugging Face."""

import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from benchmarks.harness import Load, answer_turns

Tokens = list[list[int]]


def write_tokenizer(folder: Path, size: int, special: Mapping[str, int], *, ends: bool = False) -> None:
    """Writes a tokenizer with one word for each token, from which CTranslate2 takes the vocabulary.

    `special` has token ids by transformers' names, such as `pad_token`. `ends` appends the end token to each text.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = {token: f"<{name.removesuffix('_token')}>" for name, token in special.items()}
    words = {names.get(token, f"w{token}"): token for token in range(size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token=names[special["unk_token"]]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if ends:
        end = names[special["eos_token"]]
        template = processors.TemplateProcessing(single=f"$A {end}", special_tokens=[(end, special["eos_token"])])
        tokenizer.post_processor = template
    tokenizer.add_special_tokens(list(names.values()))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {name: names[token] for name, token in special.items()}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **config}))


def make_optimum(models: str, name: str, checkpoint: Path, made: Path) -> None:
    """Exports a checkpoint with Optimum's class `models`; a name such as "optimum O2 fp32" says how to optimise it."""
    import optimum.onnxruntime
    from optimum.onnxruntime.configuration import AutoOptimizationConfig, AutoQuantizationConfig

    exported = getattr(optimum.onnxruntime, models).from_pretrained(checkpoint, export=True)
    match name.split()[1:]:
        case ["int8"]:
            precision = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=True)
            quantizer = optimum.onnxruntime.ORTQuantizer.from_pretrained(exported)
            quantizer.quantize(save_dir=made, quantization_config=precision)
        case [level, _]:
            optimizer = optimum.onnxruntime.ORTOptimizer.from_pretrained(exported)
            optimizer.optimize(save_dir=made, optimization_config=getattr(AutoOptimizationConfig, level)())
        case _:
            exported.save_pretrained(made)


def load_optimum(models: str, folder: Path, threads: int) -> Any:
    import onnxruntime
    import optimum.onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return getattr(optimum.onnxruntime, models).from_pretrained(folder, session_options=options)


def make_openvino(models: str, name: str, checkpoint: Path, made: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Exports a checkpoint with optimum-intel's class `models`.

    In int8, NNCF quantises statically with the inputs `rows`. Without rows only the weights are quantised.
    """
    import optimum.intel

    weights_only = name.endswith("int8") and not rows
    options = {"export": True, "compile": False, "load_in_8bit": weights_only}
    exported = getattr(optimum.intel, models).from_pretrained(checkpoint, **options)
    if name.endswith("int8") and rows:
        import nncf

        names = {port.get_any_name() for port in exported.model.inputs}
        inputs = [{key: value for key, value in row.items() if key in names} for row in rows]
        exported.model = nncf.quantize(exported.model, nncf.Dataset(inputs), model_type=nncf.ModelType.TRANSFORMER)
    exported.save_pretrained(made)


def load_openvino(models: str, name: str, folder: Path, threads: int) -> Any:
    """Loads a model in the precision of its name. In int8 OpenVINO chooses the precision of the other operators."""
    import optimum.intel

    config: dict[str, Any] = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"}
    if hint := {"fp32": "f32", "bf16": "bf16"}.get(name.split()[-1]):
        config["INFERENCE_PRECISION_HINT"] = hint
    return getattr(optimum.intel, models).from_pretrained(folder / name, ov_config=config)


def load_torch(models: str, name: str, folder: Path, threads: int, device: str = "cpu") -> Any:
    """Loads the checkpoint with transformers' class `models`; "compiled" and zentorch compile its forward pass."""
    import torch
    import transformers

    torch.set_num_threads(threads)
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[name.split()[-1]]
    model = getattr(transformers, models).from_pretrained(folder / "checkpoint", dtype=dtype).to(device).eval()
    if name.startswith("zentorch"):
        import zentorch  # noqa: F401  registers its compiler

        model.forward = torch.compile(model.forward, backend="zentorch")
    elif "compiled" in name:
        model.forward = torch.compile(model.forward)
    return model


def generate(model: Any, rows: Tokens, **options: Any) -> Tokens:
    """Returns the tokens of a model with Hugging Face's `generate`, without the first, which starts an answer."""
    import torch

    source = torch.tensor(rows, device=model.device)
    with torch.inference_mode():
        output = model.generate(input_ids=source, attention_mask=torch.ones_like(source), do_sample=False, **options)
    return cast(Tokens, output[:, 1:].tolist())


def convert_to_ctranslate2(name: str, checkpoint: Path, folder: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(checkpoint)).convert(str(folder), quantization=ct2_type(name), force=True)


def ct2_type(name: str) -> str:
    return "int8" if name.endswith("int8") else "float32"


def load_ctranslate2(name: str, folder: Path, threads: int) -> Callable[..., Tokens]:
    """Returns a function from rows of tokens and options of `translate_batch` to the tokens of the answers."""
    import ctranslate2

    path, kind = str(folder / name), ct2_type(name)
    translator = ctranslate2.Translator(path, device="cpu", compute_type=kind, intra_threads=threads)
    tokens = vocabulary(folder)
    words = {token: word for word, token in tokens.items()}

    def translate(rows: Tokens, **options: int) -> Tokens:
        answers = translator.translate_batch([[words[token] for token in row] for row in rows], **options)
        return [[tokens[word] for word in answer.hypotheses[0]] for answer in answers]

    return translate


def vocabulary(folder: Path) -> dict[str, int]:
    """Returns the tokens by word of the checkpoint in `folder`."""
    return dict(json.loads((folder / "checkpoint" / "tokenizer.json").read_text("utf-8"))["model"]["vocab"])


def dispatch(
    main: Callable[[], int],
    engines: Mapping[str, Load],
    *,
    checkpoint: Callable[[str, Path], None],
    ours: Callable[[str, str, Path, Path], None],
    optimum: str,
    calibration: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Ends the program with `main`, or does what `compare` starts of it: an engine of a group, or its model.

    `checkpoint` gets the group and the folder to write; `ours` gets name, group, checkpoint and folder. `optimum` is
    the name of a class without the ORT or OV before it.
    """
    match sys.argv[1:]:
        case ["--serve", name, group, folder]:
            answer_turns(lambda: engines[name](name, group, Path(folder)))
        case ["--make", name, group, folder]:
            logging.disable(logging.INFO)  # a line for each node that is quantised
            (made := Path(folder) / name).mkdir(parents=True, exist_ok=True)
            source = Path(folder) / "checkpoint"
            match name.split()[0]:
                case "checkpoint":
                    checkpoint(group, made)
                case "optimum":
                    make_optimum(f"ORT{optimum}", name, source, made)
                case "openvino":
                    make_openvino(f"OV{optimum}", name, source, made, calibration)
                case "ctranslate2":
                    convert_to_ctranslate2(name, source, made)
                case "ours":
                    ours(name, group, source, made)
        case _:
            sys.exit(main())
