"""Latency of one spelling correction: ours beside Hugging Face `generate` and CTranslate2.

  make bench                                        installs the peers, builds both targets, then runs this
  python benchmarks/spellcheck_latency.py --rounds 9

Each engine has one thread and answers the workload's payloads one at a time. Prints medians with ratios to Hugging
Face, and how many answers differ from Hugging Face's.
"""

import itertools
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import harness, peers
from benchmarks.harness import BASELINE, ROOT, Answer
from workloads import TextToText, load_workload

TITLE = "one correction"
ALL = "all"
"""The case of all payloads, untimed. Any other case is the next payload."""
CHECKPOINT = ROOT / "workloads" / "spellcheck" / "checkpoint"
LONGEST = cast(TextToText, load_workload("spellcheck").workload.model).max_output_tokens


def main() -> int:
    rounds = harness.options(__doc__, rounds=(5, "turns of each engine")).rounds
    names = list(ENGINES)
    if not harness.machine(["ctranslate2"])["versions"]["ctranslate2"]:
        names = [name for name in names if not name.startswith("ctranslate2")]
    with harness.started(Path(__file__), names, threads=1, peers=Path(sys.executable)) as engines:
        answers = {engine.name: engine.answer(ALL) for engine in engines}
        result = harness.summary(TITLE, harness.in_turn(engines, "next", rounds), BASELINE, ())
    print(harness.table(TITLE, result))
    differ = {name: sum(map(str.__ne__, answers[BASELINE], texts)) for name, texts in answers.items()}
    print("other answers: " + ", ".join(f"{name} {count}" for name, count in differ.items()))
    return harness.finish("spellcheck_latency", harness.PACKAGES, {**result, "other_answers": differ}, ())


def _served(name: str) -> Answer:
    """Returns the engine's answer to a case."""
    answer = ENGINES[name](name)
    texts = [row["text"] for row in load_workload("spellcheck").payloads()]
    following = itertools.cycle(texts)
    return lambda case: [answer(text) for text in texts] if case == ALL else answer(next(following))


def _hugging_face(name: str) -> Answer:
    import torch
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    model: Any = T5ForConditionalGeneration.from_pretrained(CHECKPOINT).eval()

    def answer(text: str) -> str:
        with torch.inference_mode():
            output = model.generate(**tokenizer(text, return_tensors="pt"), do_sample=False, max_new_tokens=LONGEST)
        return str(tokenizer.decode(output[0], skip_special_tokens=True))

    return answer


def _ctranslate2(name: str) -> Answer:
    import ctranslate2
    from tokenizers import Tokenizer

    folder = Path(tempfile.mkdtemp())
    peers.convert_to_ctranslate2(name, CHECKPOINT, folder)
    translator = ctranslate2.Translator(str(folder), device="cpu", intra_threads=1)
    tokenizer = Tokenizer.from_file(str(CHECKPOINT / "tokenizer.json"))
    vocabulary = tokenizer.get_vocab()

    def answer(text: str) -> str:
        tokens = tokenizer.encode(text).tokens
        (result,) = translator.translate_batch([tokens], beam_size=1, max_decoding_length=LONGEST)
        return str(tokenizer.decode([vocabulary[word] for word in result.hypotheses[0]]))

    return answer


def _ours(name: str) -> Answer:
    from containers.text2text.generator import Refusal, TextGenerator
    from model_build.plan import plan
    from model_build.text2text.repository import settings
    from model_build.triton.repository import version_folder

    built = plan(load_workload("spellcheck"), "cpu-int8" if name.endswith("int8") else "cpu", ROOT)
    decoding = settings(built.compile_inputs.text2text, built.target, built.checkpoint)
    generator = TextGenerator.load(version_folder(built.repository, "spellcheck"), decoding)

    def answer(text: str) -> str:
        (answered,) = generator.answer([[text.encode()]])
        if isinstance(answered, Refusal):
            raise SystemExit(answered.message)
        return answered[0].decode()

    return answer


ENGINES = {
    BASELINE: _hugging_face,
    **dict.fromkeys(("ctranslate2 fp32", "ctranslate2 int8"), _ctranslate2),
    **dict.fromkeys(("ours fp32", "ours int8"), _ours),
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        harness.answer_turns(lambda: _served(sys.argv[2]))
    else:
        sys.exit(main())
