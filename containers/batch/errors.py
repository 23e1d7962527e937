"""The errors of the batch program, each with the exit code that the README's table gives it."""

from collections.abc import Sequence


class BatchError(Exception):
    """A problem stated in the user's words: where, what, the value got, what is allowed, what to do next."""

    exit_code = 2


class InputMissing(BatchError):
    def __init__(self, location: str) -> None:
        super().__init__(f"--input {location}: there is no .jsonl or .jsonl.gz file.")


class InputUnreadable(BatchError):
    def __init__(self, location: str, reason: str) -> None:
        super().__init__(f"{location}: cannot be read as gzip ({reason}). Replace the file, or take it out.")


class OutputInsideInput(BatchError):
    def __init__(self, output: str, input_: str) -> None:
        super().__init__(
            f"--output {output}: lies inside --input {input_}, so that a restart would read its own predictions. "
            "Give another place."
        )


class OtherJob(BatchError):
    def __init__(self, output: str, differences: Sequence[str]) -> None:
        super().__init__(
            f"{output}/job.json: this output was begun with other things, so it cannot be continued: "
            f"{'; '.join(differences)}. Give them as they were, or another --output."
        )


class TooFewCores(BatchError):
    def __init__(self, workers: int, groups: int) -> None:
        super().__init__(
            f"--workers {workers}: the NeuronCores here hold {groups} copies of the model, and none is shared. "
            f"Give at most {groups}."
        )


class NeuronRefused(BatchError):
    """In the words of the server's own code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class MiscountedChunk(BatchError):
    exit_code = 1

    def __init__(self, output: str, number: int, expected: int, answered: int, bad: int) -> None:
        super().__init__(
            f"{output}: chunk {number} of the input has {expected} rows, its files {answered} answers and {bad} bad "
            f"rows. Delete predictions-{number:06}.jsonl and start again."
        )


class RowsMissing(BatchError):
    exit_code = 1

    def __init__(self, output: str, chunks: int, rows: int) -> None:
        super().__init__(
            f"{output}: {rows:,} rows of the input are neither answered nor refused ({chunks} chunks have no "
            "predictions). Run every shard again, with the same --output: each does what is missing."
        )


class NotBegun(BatchError):
    def __init__(self, output: str) -> None:
        super().__init__(f"--output {output}: there is no job.json, so nothing was made there. Run the shards first.")


class ModelMissing(BatchError):
    exit_code = 3

    def __init__(self, folder: str, reason: str) -> None:
        super().__init__(
            f"--model {folder}: {reason.removesuffix('.')}. It must be a built model's folder, with settings.json, "
            "tokenizer.json and the compiled model, or a Triton repository of them."
        )


class LibraryMissing(BatchError):
    exit_code = 3

    def __init__(self, location: str, library: str) -> None:
        super().__init__(f"{location}: needs {library}, which is not installed. Install it, or use a path on disk.")


class StorageRefused(BatchError):
    exit_code = 3

    def __init__(self, location: str, reason: str) -> None:
        super().__init__(f"{location}: {reason}")


class WorkerFailed(BatchError):
    exit_code = 3

    def __init__(self, worker: int, reason: str) -> None:
        super().__init__(
            f"worker {worker} {reason.removesuffix('.')}. Finished chunks are kept: the same command goes on where "
            "this one stopped."
        )
