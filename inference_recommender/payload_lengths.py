"""Payload lengths in tokens, counted by the tokenizer of the workload's build, which is the checkpoint's own."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from workloads import (
    ROOT,
    PayloadLengths,
    Row,
    TextToText,
    TokenCounts,
    UsageError,
    Workload,
    WorkloadFolder,
    artifact_file,
)

TOKENIZER = "tokenizer.json"


class PayloadTokenizer:
    """Counts the tokens of a row as the served model does: a segment's fields are joined by a space, and one or two
    segments are encoded together with their special tokens.
    """

    def __init__(self, file: Path, workload: Workload) -> None:
        """Raises `UsageError` if `file` cannot be read."""
        model = workload.model
        try:
            from tokenizers import Tokenizer

            self._tokenizer = Tokenizer.from_file(str(file))
        except ImportError:
            raise UsageError("The package tokenizers, which counts tokens, is missing. Run `make setup`.") from None
        except Exception as error:  # the class that the library raises
            raise UsageError(f"{file}: cannot be read as a tokenizer: {error}. Build {workload.name} again.") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._segments = (model.fields,) if isinstance(model, TextToText) else model.segments
        self._truncates = not isinstance(model, TextToText) and model.truncation
        self.limit = model.max_input_tokens

    def count(self, rows: Sequence[Row]) -> list[int]:
        """Returns the tokens of each row, special tokens included."""
        texts = [tuple(" ".join(row[field] for field in segment) for segment in self._segments) for row in rows]
        encoded = self._tokenizer.encode_batch([each if len(each) > 1 else each[0] for each in texts])
        return [min(len(each), self.limit) if self._truncates else len(each) for each in encoded]


def built_tokenizer(folder: WorkloadFolder) -> PayloadTokenizer:
    """Returns the tokenizer of the hosted target's build. Raises `UsageError` if it has none."""
    workload = folder.workload
    target = workload.hosting.target
    repository = artifact_file(folder.builds(ROOT), workload.name, target).with_name("repository")
    file = next(iter(sorted(repository.glob(f"*/1/{TOKENIZER}"))), None)
    if file is None:
        raise UsageError(
            f"{repository} has no {TOKENIZER}, so payload lengths are unknown. Run `python -m model_build build "
            f"{workload.name} --target {target}` here. A model that tokenizes with a TorchScript module has none."
        )
    return PayloadTokenizer(file, workload)


def token_counts(counts: Sequence[int]) -> TokenCounts:
    """Returns the percentiles of one or more counts, by nearest rank."""
    ordered = sorted(counts)
    p50, p90, p99 = (ordered[max(math.ceil(share * len(ordered)) - 1, 0)] for share in (0.5, 0.9, 0.99))
    return TokenCounts(mean=sum(ordered) / len(ordered), p50=p50, p90=p90, p99=p99, maximum=ordered[-1])


def payload_lengths(tokenizer: PayloadTokenizer, rows: Sequence[Row]) -> PayloadLengths:
    counts = token_counts(tokenizer.count(rows))
    return PayloadLengths(payloads=len(rows), max_input_tokens=tokenizer.limit, input_tokens=counts)


def known_lengths(folder: WorkloadFolder, warn: Callable[[str], None]) -> PayloadLengths | None:
    """Returns the lengths of the workload's payloads. Warns and returns None if its build has no tokenizer."""
    try:
        return payload_lengths(built_tokenizer(folder), folder.payloads())
    except UsageError as error:
        warn(f"The recommendation will not state payload lengths. {error}")
        return None
