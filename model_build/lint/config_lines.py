"""On which line of a config.pbtxt each key stands. Pure.

In: text that protobuf's own parser has accepted. Out: `dynamic_batching.preferred_batch_size` → 12. Of a repeated field
the first is `input`, the second `input[1]`. Only keys that are written have a line.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping

TOKEN = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|[{}<>\[\]:,;]|[^\s{}<>\[\]:,;#"']+""")


def key_lines(text: str) -> Mapping[str, int]:
    walk = _Walk(text)
    walk.block("")
    return walk.lines


class _Walk:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens, None)
        self._seen: Counter[str] = Counter()
        self.lines: dict[str, int] = {}

    def _take(self) -> tuple[str, int]:
        token = self._next or ("", 0)
        self._next = next(self._tokens, None)
        return token

    def _at(self, characters: str) -> bool:
        return self._next is not None and self._next[0][0] in characters

    def block(self, prefix: str) -> None:
        """The fields up to the end of a message."""
        while self._next is not None:
            token, line = self._take()
            if token in "}>":
                return
            if token not in ",;":
                self._field(f"{prefix}{token}", line)

    def _field(self, path: str, line: int) -> None:
        if self._at(":"):
            self._take()
        if not self._at("["):
            self._value(path, line)
            return
        self._take()
        while self._next is not None and not self._at("]"):
            if self._at(","):
                self._take()
            else:
                self._value(path, self._next[1])
        self._take()
        self.lines.setdefault(path, line)

    def _value(self, path: str, line: int) -> None:
        index = self._seen[path]
        self._seen[path] += 1
        path = f"{path}[{index}]" if index else path
        self.lines.setdefault(path, line)
        if self._at("{<"):
            self._take()
            self.block(f"{path}.")
            return
        self._take()
        while self._at("\"'"):
            self._take()


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, position = 1, 0
    for match in TOKEN.finditer(text):
        line += text.count("\n", position, match.start())
        position = match.start()
        if not match[0].startswith("#"):
            yield match[0], line
