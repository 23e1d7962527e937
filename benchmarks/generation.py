"""Encoder–decoders at published sizes, 9 tokens in and 11 out: ours beside Hugging Face `generate`, greedy and beams.

  python benchmarks/generation.py
  python benchmarks/generation.py --model marian --pairs 9

Weights are seeded and random in the dimensions of bart-base and of opus-mt. The end is never said, so that every answer
has 11 tokens. Both sides are given the same rows and one thread, and in fp32 they have to give the same tokens. A
figure is the median over pairs: calls of Hugging Face and of ours in turn, so that what else runs on the machine slows
both. Milliseconds are those of a call of all rows. Prints a table and one JSON document on the last line.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.side_by_side import machine, pairs

SOURCE, ANSWER = 9, 11
SIZES: dict[str, dict[str, int]] = {
    "bart": {"vocab_size": 50265, "d_model": 768, "attention_heads": 12, "ffn_dim": 3072},
    "marian": {"vocab_size": 58101, "d_model": 512, "attention_heads": 8, "ffn_dim": 2048},
}
LAYERS = 6
"""The dimensions of facebook/bart-base and of Helsinki-NLP's opus-mt models."""
PACKAGES = ("numpy", "onnxruntime", "torch", "transformers")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=SIZES, action="append", help="only this; may be repeated")
    parser.add_argument("--rows", type=int, action="append", help="rows of a call (default 1 and 16)")
    parser.add_argument("--beams", type=int, action="append", help="1 is greedy (default 1 and 4)")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of calls (default 5)")
    options = parser.parse_args(arguments)
    load, rows = os.getloadavg()[0], []
    for model in options.model or SIZES:
        with tempfile.TemporaryDirectory() as folder:
            for row in compare(model, Path(folder), options.rows or [1, 16], options.beams or [1, 4], options.pairs):
                print(
                    f"{row['model']:7} {row['rows']:3} rows, {row['beams']} beams, {row['precision']}: "
                    f"{row['huggingface_ms']:8.1f} ms → {row['ours_ms']:7.1f} ms, {row['times_faster']:.1f} ×",
                    flush=True,
                )
                rows.append(row)
    print(json.dumps({"machine": machine(PACKAGES), "load_average": load, "threads": 1, "rows": rows}))
    return 0


def compare(model: str, folder: Path, counts: list[int], beams: list[int], number: int) -> Any:
    """Yields a row for each number of rows, of beams, and each precision."""
    import numpy as np
    import torch
    from tokenizers import Tokenizer, models

    from containers.text2text.engine import OnnxEngine
    from containers.text2text.generation import Generation
    from containers.text2text.generator import TextGenerator
    from containers.text2text.settings import Settings
    from model_build.text2text import export, optimise

    torch.set_num_threads(1)
    original = make(model)
    export.export(original, folder, max_input_tokens=16, max_output_tokens=16)
    settings = Settings(
        max_input_tokens=16,
        max_output_tokens=ANSWER,
        decoder_start_token_id=0,
        eos_token_ids=(1,),
        pad_token_id=2,
        threads=1,
    )
    engines = {}
    for precision in ("fp32", "int8"):
        compiled = folder / precision
        compiled.mkdir()
        optimise.optimise(folder, compiled, precision)
        engines[precision] = OnnxEngine(compiled / "encoder.onnx", compiled / "decoder.onnx", threads=1)
    for count in counts:
        token_ids = np.random.default_rng(0).integers(3, 30_000, (count, SOURCE))
        for width in beams:
            generation = Generation(num_beams=width, suppress_tokens=(1,))
            theirs = huggingface(original, token_ids, width)
            for precision, engine in engines.items():
                generator = TextGenerator(Tokenizer(models.BPE()), engine, settings)
                rows = token_ids.tolist()

                def ours(generator: Any = generator, rows: Any = rows, generation: Any = generation) -> Any:
                    return [row.tolist() for row in generator.generate(rows, generation)]

                if precision == "fp32" and ours() != theirs():
                    raise SystemExit(f"{model}, {count} rows, {width} beams: the tokens differ")
                measured = pairs(theirs, ours, number=number, calls=2)
                medians = [statistics.median(side) for side in zip(*measured, strict=True)]
                yield {
                    "model": model,
                    "rows": count,
                    "beams": width,
                    "precision": precision,
                    "huggingface_ms": round(medians[0], 1),
                    "ours_ms": round(medians[1], 1),
                    "times_faster": round(statistics.median(a / b for a, b in measured), 2),
                }


def make(model: str) -> Any:
    """Returns a model with seeded weights."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

    size = SIZES[model]
    stacks = {
        f"{stack}_{key}": value
        for stack in ("encoder", "decoder")
        for key, value in {"layers": LAYERS, **size}.items()
        if key in ("layers", "attention_heads", "ffn_dim")
    }
    configure, build = (BartConfig, BartForConditionalGeneration) if model == "bart" else (MarianConfig, MarianMTModel)
    torch.manual_seed(0)
    make_config: Any = configure
    ids = {"pad_token_id": 2, "eos_token_id": 1, "decoder_start_token_id": 0, "forced_eos_token_id": None}
    config = make_config(vocab_size=size["vocab_size"], d_model=size["d_model"], **stacks, **ids)
    return build(config).eval()


def huggingface(model: Any, token_ids: Any, beams: int) -> Callable[[], list[list[int]]]:
    import torch

    source = torch.tensor(token_ids)

    def answer() -> list[list[int]]:
        with torch.inference_mode():
            said = model.generate(
                input_ids=source,
                attention_mask=torch.ones_like(source),
                num_beams=beams,
                do_sample=False,
                suppress_tokens=[1],
                max_new_tokens=ANSWER,
            )
        tokens: list[list[int]] = said[:, 1:].tolist()
        return tokens

    return answer


if __name__ == "__main__":
    sys.exit(main())
