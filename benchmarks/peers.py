"""Our engines and those of other projects: their processes, their models, and the comparison.

Optimum and CTranslate2 need other versions of our dependencies. They have an environment of their own, `.venv-peers`,
which `make peers` makes. Without it they are left out.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.harness import BASELINE, ROOT, EngineProcess, Goals, environment, finish, in_turn, summary, table

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"


@contextmanager
def started(
    program: Path, names: Sequence[str], *arguments: str, threads: int, peers: Path = PEERS_PYTHON
) -> Iterator[list[EngineProcess]]:
    """Starts an engine for each name. Those of other projects run in the peers' environment."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                EngineProcess(program, name, *arguments, threads=threads, python=python_of(name, peers))
            )
            for name in names
        ]


def is_peer(name: str) -> bool:
    return name.startswith(("optimum", "ctranslate2"))


def python_of(name: str, peers: Path = PEERS_PYTHON) -> Path:
    return peers if is_peer(name) else Path(sys.executable)


def present(names: Iterable[str], peers: Path = PEERS_PYTHON) -> list[str]:
    """Returns the engines that can run here. The baseline is always the first."""
    chosen = [BASELINE, *(name for name in names if name != BASELINE)]
    if peers.exists():
        return chosen
    absent = [name for name in chosen if is_peer(name)]
    if absent:
        print(f"Left out, because there is no {peers}: {', '.join(absent)}.", file=sys.stderr)
    return [name for name in chosen if name not in absent]


def make(
    program: Path, name: str, arguments: Sequence[str], folder: Path, threads: int, peers: Path = PEERS_PYTHON
) -> bool:
    """Runs `program --make NAME ARGUMENTS` once for a folder. Peers have five minutes. Returns whether it succeeded."""
    if (done := folder / name / "made").exists():
        return True
    try:
        subprocess.run(
            [python_of(name, peers), program, "--make", name, *arguments],
            env=environment(threads),
            check=True,
            stdout=sys.stderr,
            timeout=300 if is_peer(name) else None,
        )
    except subprocess.TimeoutExpired:
        print(f"{name} is left out: it was not made in five minutes.", file=sys.stderr)
        return False
    done.touch()
    return True


def compare(
    benchmark: Path,
    packages: Sequence[str],
    groups: Sequence[str],
    cases: Sequence[str],
    names: Iterable[str],
    goals: Goals,
    check: Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]],
    *,
    rounds: int,
    threads: int,
    offers: Callable[[str, str], bool] = lambda group, name: True,
) -> int:
    """Compares engines on the models `groups`, prints a table for each case, and returns the exit code.

    `check` gets group, case and all answers. It raises SystemExit if one is wrong, and returns what the result adds.
    """
    results, judged = {}, []
    with tempfile.TemporaryDirectory(prefix=f"{benchmark.stem}_") as scratch:
        for group in groups:
            folder, arguments = Path(scratch) / group, (group, str(Path(scratch) / group))
            make(benchmark, "checkpoint", arguments, folder, threads)
            chosen = [
                name
                for name in present(names)
                if offers(group, name) and (name == BASELINE or make(benchmark, name, arguments, folder, threads))
            ]
            with started(benchmark, chosen, *arguments, threads=threads) as engines:
                for case in cases:
                    checked = check(group, case, {engine.name: engine.answer(case) for engine in engines})
                    result = {**summary(in_turn(engines, case, rounds), BASELINE, goals), **checked}
                    print(table(f"{group}, {case}", result), end="\n\n", flush=True)
                    results[f"{group}, {case}"] = result
                    judged += result["goals"]
    return finish(benchmark.stem, packages, {"threads": threads, "cases": results}, judged)


def write_tokenizer(folder: Path, size: int, special: Mapping[str, int], *, ends: bool = False) -> None:
    """Writes a tokenizer with one word for each token, from which CTranslate2 takes the vocabulary.

    `special` has token ids by transformers' names, such as `pad_token`. `ends` appends the end token to each text.
    """
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    names = {token: f"<{name.removesuffix('_token')}>" for name, token in special.items()}
    words = {names.get(token, word(token)): token for token in range(size)}
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


def word(token: int) -> str:
    return f"w{token}"


def ct2_type(name: str) -> str:
    return "int8" if name.endswith("int8") else "float32"


def convert_to_ctranslate2(name: str, checkpoint: Path, folder: Path) -> None:
    from ctranslate2.converters import TransformersConverter

    TransformersConverter(str(checkpoint)).convert(str(folder), quantization=ct2_type(name), force=True)


def onnx_options(threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return options
