"""Checks that tokenizer.json is a tokenizer, and that the model has an embedding for each of its tokens."""

import functools
import string
import subprocess
import sys
from pathlib import Path

from model_build.checkpoint.files import broken, loading

TRIAL = ("", "a", "Straße 12, ﷺ 🙂\n")
"""Texts that a tokenizer must accept: an empty one, a letter, and characters outside most vocabularies."""
LIMIT_S = 20.0
"""Seconds for a short text. Normalisers that each replace a letter by ten can make it endless."""
ONE_TEXT = "import sys, tokenizers; tokenizers.Tokenizer.from_file(sys.argv[1]).encode(sys.argv[2])"


def check_tokenizer(file: Path, vocab_size: int | None = None, segments: int = 1) -> None:
    """Loads the file and tokenises a few texts of `segments` segments. Raises `UsageError`.

    Raises ModuleNotFoundError where the build's tools are not installed.
    """
    from tokenizers import Tokenizer

    if not file.is_file():
        raise broken(
            file, "does not exist. Save the model's fast tokenizer there: AutoTokenizer's `save_pretrained` writes it."
        )
    check_time(file)
    with loading(file):
        tokenizer = Tokenizer.from_file(str(file))
        for text in TRIAL:
            tokenizer.encode(text) if segments == 1 else tokenizer.encode(text, text)
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    if not vocabulary:
        raise broken(file, "knows no tokens. Save or copy it again.")
    token = max(vocabulary, key=vocabulary.__getitem__)
    if vocab_size is not None and vocabulary[token] >= vocab_size:
        raise broken(
            file,
            f"token {token!r} has the id {vocabulary[token]}, but config.json says vocab_size {vocab_size}. "
            "Save model and tokenizer together again.",
        )


def check_time(file: Path) -> None:
    """Raises `UsageError` if the tokenizer does not end on a short text."""
    if not _ends(file, file.stat().st_mtime_ns):
        raise broken(file, f"does not tokenise a text of 100 characters within {LIMIT_S:g} s. Save or copy it again.")


@functools.cache
def _ends(file: Path, modified_ns: int) -> bool:
    """Tokenises in a child process, because nothing else stops the library. Other errors are the caller's to find."""
    try:
        command = [sys.executable, "-c", ONE_TEXT, str(file), string.printable]
        child = subprocess.run(command, capture_output=True, timeout=LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return False
    return child.returncode >= 0  # below 0 the kernel killed it, for its memory


def padding_token(file: Path) -> int:
    """Returns the id of the token that fills a row up: the tokenizer's own, else [PAD]'s, else 0."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(file))
    if tokenizer.padding:
        return int(tokenizer.padding["pad_id"])
    return int(tokenizer.token_to_id("[PAD]") or 0)
