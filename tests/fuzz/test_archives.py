"""Archives made of anything: a faithful unpacking within the limits, or `ArchiveRefused` and nothing on disk."""

import gzip
import io
import random
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from containers.archive_reader import ArchiveRefused, Limits, entries, read_files, unpack
from tests.containers import hostile_archives as tar
from tests.fuzz import examples

LIMITS = Limits(entries=40, bytes=1 << 20)
Tree = dict[str, bytes]


def unpacked(archive: bytes) -> Tree | None:
    """Returns the unpacked files, or None if the archive was refused. Nothing outside the folder may change."""
    with TemporaryDirectory() as scratch:
        around, folder = Path(scratch), Path(scratch, "in")
        (around / tar.OUTSIDE).write_bytes(b"mine")
        refusal = None
        try:
            unpack(io.BytesIO(archive), folder, limits=LIMITS)
        except ArchiveRefused as refused:
            refusal = str(refused)
        assert (around / tar.OUTSIDE).read_bytes() == b"mine"
        if refusal is not None:
            assert refusal.isprintable()
            assert [path.name for path in around.iterdir()] == [tar.OUTSIDE], "nothing is left"
            return None
        assert {path.name for path in around.iterdir()} == {tar.OUTSIDE, "in"}
        paths = list(folder.rglob("*"))
        assert all(path.is_dir() or path.is_file() for path in paths)
        assert not any(path.is_symlink() for path in paths)
        assert len(paths) <= LIMITS.entries
        tree = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.is_file()}
        assert sum(map(len, tree.values())) <= LIMITS.bytes
        return tree


def check(archive: bytes) -> Tree | None:
    """Reads an archive in all three ways, which must agree."""
    tree = unpacked(archive)
    in_memory: Tree | None = None
    with suppress(ArchiveRefused):
        in_memory = read_files(io.BytesIO(archive), limits=LIMITS)
    assert in_memory == tree
    with suppress(ArchiveRefused):
        list(entries(io.BytesIO(archive), limits=LIMITS))
        return tree
    assert tree is None
    return None


ODD = ["..", ".", "", "…" * 90, "\n", "a\\b", "C:", "~", "\x1b[2J"]
parts = st.sampled_from([*["a", "b", "model", "1", "ünï", "c", "d"] * 6, *ODD])
names = st.lists(parts, min_size=1, max_size=5).map("/".join)
contents = st.binary(max_size=1200)
types = st.sampled_from([*b"0" * 12, *b"5" * 4, *b"1234678DKLMNSVgx\0\xff"]).map(lambda code: bytes([code]))


def plain(name: str, content: bytes) -> bytes:
    """Returns a member as tar packs it, by pax where the name does not fit."""
    if len(name.encode()) > 90:
        return tar.pax({"path": name}) + tar.file("long", content)
    return tar.file(name, content)


GOOD = {"model/config.pbtxt": b"name: 1", "model/1/model.py": b"pass" * 300, "model/1/ünï": bytes(2000)}


def packed_tree(tree: Tree) -> bytes:
    return tar.packed(*(plain(name, content) for name, content in tree.items()))


@st.composite
def members(draw: st.DrawFn) -> bytes:
    """One member, or an extended header: any type, name, target and claimed size, written in any format."""
    name, content, type_ = draw(names), draw(contents), draw(types)
    size = draw(st.sampled_from([len(content)] * 20 + [0, 1, 511, 513, 1 << 20, (1 << 33) - 1]))
    short = "".join(name[:90]).encode()[:90].decode("utf-8", "ignore")
    block = tar.header(short, type_, 0, draw(names)[:40])
    block = tar.changed(block, size=b"%011o\0" % size)
    before = draw(
        st.sampled_from(
            [
                *[b""] * 10,
                tar.pax({"path": name}),
                tar.pax({"size": str(size), "mtime": "1.5"}),
                tar.pax({"GNU.sparse.major": "1", "GNU.sparse.realsize": "999999999"}),
                tar.pax({"linkpath": name}, b"g"),
                tar.long_name(name.encode() + b"\0"),
                tar.changed(tar.header("x"), size=b"\x80" + b"\xff" * 11),
            ]
        )
    )
    return before + block + tar.padded(content)


@examples(80)
@given(st.lists(members(), max_size=8), st.integers(1, 3), st.booleans())
def test_no_member_leaves_the_folder_or_is_incomplete(found: list[bytes], streams: int, marked: bool) -> None:
    plain_bytes = b"".join(found) + (bytes(1024) if marked else b"")
    cuts = [len(plain_bytes) * part // streams for part in range(streams + 1)]
    tree = check(b"".join(gzip.compress(plain_bytes[cut:end], 1) for cut, end in pairwise(cuts)))
    for name in tree or ():
        assert ".." not in PurePosixPath(name).parts
        assert not name.startswith("/")


CHANGES: list[Callable[[random.Random, bytearray], None]] = [
    lambda chance, data: data.__setitem__(chance.randrange(len(data)), chance.randrange(256)),
    lambda chance, data: data.__delitem__(slice(chance.randrange(len(data)), None)),
    lambda chance, data: data.__delitem__(slice((cut := chance.randrange(len(data))), cut + chance.randrange(40))),
    lambda chance, data: data.extend(data[chance.randrange(len(data)) :]),
    lambda chance, data: data.extend(chance.randbytes(chance.randrange(40))),
    lambda chance, data: data.__setitem__(slice((at := chance.randrange(len(data))), at), chance.randbytes(4)),
]


def change(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 3)):
        if changed:
            chance.choice(CHANGES)(chance, changed)
    return bytes(changed)


@examples(80)
@given(st.randoms(use_true_random=False))
def test_a_damaged_archive_is_refused_or_unchanged(chance: random.Random) -> None:
    """gzip's own checksum tells; a copy of it behind it says the same files again, which is refused as well."""
    assert check(change(packed_tree(GOOD), chance)) in (None, GOOD)


@examples(80)
@given(st.randoms(use_true_random=False), st.booleans())
def test_a_changed_tar_stays_in_its_folder(chance: random.Random, signed: bool) -> None:
    data = change(gzip.decompress(packed_tree(GOOD)), chance)
    if signed:  # with the checksums of headers set right again, so that their fields are believed
        blocks = [data[start : start + 512] for start in range(0, len(data), 512)]
        data = b"".join(tar.changed(block) if block[257:262] == b"ustar" else block for block in blocks)
    check(gzip.compress(data, 1))
