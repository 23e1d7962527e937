"""Checks the rows of evaluation.jsonl and payloads.jsonl as the served model will read them, before torch is imported.

In: a `BuildPlan`. Out: nothing, or `InvalidDocument` with the file, the line and the reason of the first
row that would be refused. Labels and fields are the contract's own to check; here the tokenizer counts.
"""

from collections.abc import Iterator, Sequence

from tokenizers import Tokenizer

from containers.encoder.preprocess import Preprocessor
from containers.encoder.row import Refusal
from model_build.encoder.graphs import settings
from model_build.plan import BuildPlan
from workloads import OnnxRuntimeTarget, Row, TextToText
from workloads.errors import InvalidDocument


def check(plan: BuildPlan) -> None:
    """Raises `InvalidDocument` for rows that the model would not answer. A TorchScript tokenizer is not asked."""
    source, model = plan.source, plan.model
    if not isinstance(model, TextToText) and model.preprocess is not None:
        return
    for name, rows in (
        ("evaluation.jsonl", [example.row for example in source.evaluation()]),
        (source.payload_file.name, source.payloads()),
    ):
        wrong = list(_refused(plan, rows))
        if wrong:
            raise InvalidDocument(source.place(name, wrong[0][0]), [_sentence(plan, wrong[0][1], len(wrong))])


def _refused(plan: BuildPlan, rows: Sequence[Row]) -> Iterator[tuple[int, str]]:
    """Yields the index of each row that would be refused, with the words that complete a sentence about it."""
    tokenizer = Tokenizer.from_file(str(plan.checkpoint.tokenizer))
    model = plan.model
    if isinstance(model, TextToText):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        lengths = [len(each) for each in tokenizer.encode_batch_fast([row["text"] for row in rows])]
        for index, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            if not row["text"].strip():
                yield index, "is empty or blank"
            elif length > model.max_input_tokens:
                yield index, f"has {length} tokens, at most {model.max_input_tokens} are allowed"
        return
    preprocessor = Preprocessor(tokenizer, settings(model, OnnxRuntimeTarget(runtime="onnxruntime"), plan.checkpoint))
    for index, code in enumerate(preprocessor.encode(rows)):
        if isinstance(code, Refusal):
            yield index, code.message


def _sentence(plan: BuildPlan, reason: str, count: int) -> str:
    others = f" {count} rows have a problem." if count > 1 else ""
    if "tokens" not in reason:
        return f"{reason}.{others}"
    model, positions = plan.model, plan.checkpoint.encoder_config.get("max_position_embeddings")
    room = f"; the model has positions for {positions}" if isinstance(positions, int) else ""
    cut = "" if isinstance(model, TextToText) else ", set truncation = true"
    limit = f"model.max_input_tokens is {model.max_input_tokens}{room}"
    return f"{reason}. {limit}: raise it{cut}, or shorten the row.{others}"
