"""Damage to documents: bytes that are changed, cut or repeated; values of JSON that are replaced, dropped or added."""

import copy
from typing import Any

from hypothesis import strategies as st

DEEP: list[Any] = []
for _ in range(300):
    DEEP = [DEEP]

JUNK = st.sampled_from(
    [
        *(None, True, False, 0, -1, 1, 3, 2**31, 2**53 + 1, 2**63, 10**30, -(10**30), 1.5, -0.0, 1e-320, 1e308),
        *(
            float("nan"),
            float("inf"),
            float("-inf"),
            "",
            "0",
            "NaN",
            "Infinity",
            "-1",
            "ünï",
            "\0",
            "\ud800",
            "a" * 5_000,
        ),
        *([], {}, [[]], [{}], {"": {}}, [None], ["x"], [1, 2], {"Key": "x"}, {"__class__": 1}, DEEP),
    ]
) | st.text(max_size=5)


@st.composite
def damaged_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """Draws `content` after up to three changes."""
    for _ in range(draw(st.integers(1, 3))):
        first = draw(st.integers(0, max(0, len(content) - 1)))
        last = min(len(content), first + draw(st.sampled_from([0, 1, 1, 2, 4, 40, 10**9])))
        piece = draw(
            st.sampled_from([b"", content[first:last] * 2, b"\0", b"[", b'"', b"}", b"-1", b"9" * 40, b"\xff\xfe"])
        )
        content = content[:first] + piece + content[last:]
    return content


@st.composite
def damaged_document(draw: st.DrawFn, document: Any) -> Any:
    """Draws a copy of a JSON document of which up to three values are replaced, dropped, added or doubled."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
        if not places:
            return draw(JUNK)
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.sampled_from(["replace", "replace", "replace", "drop", "add", "double"])):
            case "replace":
                holder[key] = copy.deepcopy(draw(JUNK))
            case "drop":
                del holder[key]
            case "add" if isinstance(holder, dict):
                holder[draw(st.text(max_size=3) | st.just("Metrics"))] = copy.deepcopy(draw(JUNK))
            case _ if isinstance(holder, list):
                holder.insert(key, copy.deepcopy(holder[key]))
    return document


def _places(document: Any) -> Any:
    """Yields every place of a document as the table or list that holds it and its key there, to a depth of 20."""
    waiting = [(document, 0)]
    while waiting:
        holder, depth = waiting.pop()
        if depth > 20:
            continue
        entries = holder.items() if isinstance(holder, dict) else enumerate(holder) if isinstance(holder, list) else ()
        for key, value in entries:
            yield holder, key
            waiting.append((value, depth + 1))
