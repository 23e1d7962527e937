"""Latency of text-to-text models: our builds beside other projects.

  python benchmarks/text2text/latency.py                       on CPU: every model, five rounds, after `make peers`
  python benchmarks/text2text/latency.py --group t5-small      a single model
  python benchmarks/text2text/latency.py --device cuda         T5 on an NVIDIA GPU, ours on PyTorch and TensorRT

t5-small and t5-base have the published dimensions and copy their source, of which they change a tenth of the words or
none. BART and Marian have the dimensions of bart-base and opus-mt with random weights, 9 tokens in and 11 out.
spellcheck is the committed model with its evaluation, one row at a time. T5 has all cores, the others one thread. In
fp32 each engine has to return Hugging Face's tokens, except for CTranslate2, which orders equally good beams otherwise.

The encoder of T5 is timed separately, so the rest is the decoder's. On a GPU of AWS's post about T5 at Amazon Search
(2022, TensorRT 8.2, 9 tokens in), its ratios are goals. Exits with 3 if the GPU or an engine is missing, and prints
what it needs.
"""

import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks import goals, harness
from benchmarks.goals import Goal
from benchmarks.harness import BASELINE, Checked, Comparison, Pairs, Turn
from benchmarks.text2text import engines, models
from model_build.tensorrt import int8
from model_build.tensorrt.trtexec import Toolchain
from workloads import Unavailable
from workloads.program import exit_code

PROGRAM = Path(engines.__file__)
GUIDED = "ours guided int8"
T5_GOALS: Mapping[str, Pairs] = {
    models.ONE_ROW: (
        ("ours int8", BASELINE, 8.0),
        ("ours int8", "ctranslate2 int8", 2.0),
        ("ours fp32", BASELINE, 3.0),
        ("ours fp32", "ctranslate2 fp32", 1.3),
        ("ours fp16", BASELINE, 7.6),
    ),
    models.CHANGED: ((GUIDED, "ours int8", 2.5), (GUIDED, "ctranslate2 int8", 6.0)),
    models.UNCHANGED: ((GUIDED, "ours int8", 5.0),),
}
SEQUENCE_GOALS: Pairs = (("ours fp32", BASELINE, 2.5), ("ours int8", BASELINE, 5.0))
BEAM_GOALS: Pairs = (("ours int8", "ctranslate2 int8", 1.0),)
SPELLCHECK_GOALS: Pairs = ((GUIDED, "ctranslate2 int8", 1.0),)
THROUGH_TRITON = f"{GUIDED}{engines.TRITON}", f"ours int8{engines.TRITON}"
PUBLISHED_MS = {
    gpu: {
        shape: dict(zip((BASELINE, "ours tensorrt fp32", "ours tensorrt fp16"), row, strict=True))
        for shape, row in rows.items()
    }
    for gpu, rows in {
        "Tesla T4": {"t5-small": (30.71, 7.54, 5.91), "t5-base": (78.44, 19.59, 13.76)},
        "NVIDIA A10G": {"t5-small": (24.22, 3.99, 3.19), "t5-base": (59.98, 11.32, 8.46)},
    }.items()
}
"""End to end by GPU and shape."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = harness.parser(__doc__, rounds=(5, "turns of each engine"))
    parser.add_argument("--device", choices=engines.ENGINES, default="cpu", help="cuda: an NVIDIA GPU of any kind")
    groups = (*models.T5_SHAPES, *models.SEQUENCES, "spellcheck")
    parser.add_argument("--group", choices=groups, action="append", help="only this model; may be repeated")
    options = parser.parse_args(arguments)
    device, missing = (_gpu(), missing_engines()) if options.device == "cuda" else ("cpu", {})
    for name, reason in missing.items():
        print(f"missing: {name}: {reason}", file=sys.stderr)
    compared: list[Comparison] = []
    judged: list[Goal] = []
    for group in options.group or (groups if device == "cpu" else models.T5_SHAPES):
        names = [name for name in engines.ENGINES[options.device] if name not in missing and offers(group, name)]
        cases = compare(group, options.device, names, options.rounds)
        compared += cases
        for each in cases:
            judged += judge(group, each, device)
    about = {"device": device, "missing": missing, "cases": {each.title: each.document() for each in compared}}
    code = goals.finish("text2text/latency", harness.PACKAGES, about, judged)
    return Unavailable.exit_code if missing else code


def _gpu() -> str:
    """Returns the name of the GPU. Raises `Unavailable` if torch finds none."""
    import torch

    if not torch.cuda.is_available():
        reasons = sorted(set(missing_engines().values()))
        tensorrt = f" TensorRT's engines are missing, too: {' '.join(reasons)}" if reasons else ""
        raise Unavailable(
            f"--device cuda needs an NVIDIA GPU, and torch {torch.__version__} finds none. Run it on a machine with a "
            f"GPU and a torch built for CUDA.{tensorrt}"
        )
    return str(torch.cuda.get_device_name())


def missing_engines() -> dict[str, str]:
    """Returns the engines on TensorRT that this machine cannot build, with what they need."""
    names = [name for name in engines.ENGINES["cuda"] if name.startswith(engines.TENSORRT)]
    try:
        Toolchain.here()
    except Unavailable as error:
        advice = "Run it in a Triton image, or `pip install tensorrt-cu12 cuda-bindings`."
        return dict.fromkeys(names, f"{str(error).removesuffix('.')}. {advice}")
    try:
        int8.check_installed()
    except Unavailable as error:
        return {name: str(error) for name in names if name.endswith("int8")}
    return {}


def offers(group: str, name: str) -> bool:
    """Returns whether an engine is compared on a model."""
    if group in models.SEQUENCES:
        return not name.endswith(engines.TRITON)
    return group == "spellcheck" or name != f"{GUIDED}{engines.TRITON}"


def compare(group: str, device: str, names: Sequence[str], rounds: int) -> list[Comparison]:
    threads = os.cpu_count() or 1 if group in models.T5_SHAPES else 1
    cases, check = models.cases(group), partial(check_answers, group)
    compared = list(harness.compare(PROGRAM, f"{group} {device}", names, cases, check, rounds=rounds, threads=threads))
    if group in models.T5_SHAPES:
        whole, encoding = compared[:2]
        token = {name: list(map(_token, whole.turns[name], turns)) for name, turns in encoding.turns.items()}
        title = f"{group} {device}, a token of the decoder"
        compared.append(Comparison(title=title, turns=token, absent=whole.absent))
        print(compared[-1].table(), end="\n\n", flush=True)
    return compared


def _token(whole: Turn, encoding: Turn) -> Turn:
    """Returns what the decoder takes for each of the 11 tokens."""
    return Turn(*((both - encoder) / 11 for both, encoder in zip(astuple(whole), astuple(encoding), strict=True)))


def check_answers(group: str, case: str, answers: Mapping[str, list[Any]]) -> dict[str, Checked]:
    """Returns the share of answers that are Hugging Face's, which has to be all for engines of the same rules."""
    expected, checked = answers[BASELINE], {}
    for name, own in answers.items():
        same = statistics.mean(row == other for row, other in zip(chain(*own), chain(*expected), strict=True))
        checked[name] = Checked(f"{same:.1%} as {BASELINE}", same == 1.0 or not _has_to_agree(group, name))
    return checked


def _has_to_agree(group: str, name: str) -> bool:
    if group in models.T5_SHAPES:
        return name != f"{engines.TENSORRT} int8"
    return name.endswith("fp32") and not name.startswith(("ctranslate2", "openvino"))


def judge(group: str, compared: Comparison, device: str) -> Iterator[Goal]:
    case = compared.title.partition(", ")[2]
    if group in models.SEQUENCES:
        yield from harness.pair_goals(compared, SEQUENCE_GOALS)
        if case == f"16 rows, {models.BEAMS}":
            yield from harness.pair_goals(compared, BEAM_GOALS)
    elif group == "spellcheck":
        yield from harness.pair_goals(compared, SPELLCHECK_GOALS)
        yield from harness.pair_goals(compared, [(*THROUGH_TRITON, 2.0)], "mean_ms")
        yield from harness.pair_goals(compared, [(*THROUGH_TRITON, 1.0)], "p99_ms")
    else:
        yield from harness.pair_goals(compared, T5_GOALS.get(case, ()))
        if case == models.ONE_ROW:
            published = PUBLISHED_MS.get(device, {}).get(group, {})
            ratios = [(name, BASELINE, published[BASELINE] / ms) for name, ms in published.items() if name != BASELINE]
            yield from harness.pair_goals(compared, ratios)
            yield from _added_by_triton(compared)


def _added_by_triton(compared: Comparison) -> Iterator[Goal]:
    """Yields the goal that Triton adds at most 10 % and 1 ms to an engine."""
    for name, through in compared.turns.items():
        inside = compared.turns.get(name.removesuffix(engines.TRITON), ())
        if name.endswith(engines.TRITON) and inside:
            added = statistics.median(outer.ms - inner.ms for outer, inner in zip(through, inside, strict=True))
            limit = 0.1 * harness.medians(inside).ms + 1
            yield Goal(cell=f"{compared.title}: ms added to {name}", figure=added, limit=limit, at_most=True)


if __name__ == "__main__":
    sys.exit(exit_code(main))
