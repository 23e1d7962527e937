"""The one reader of archives takes what it should, and refuses the rest, with every whole message."""

import gzip
import hashlib
import io
import os
import tarfile
from pathlib import Path

import pytest

from containers.archive_reader import ArchiveRefused, Entry, Limits, entries, named_sha256, read_files, unpack
from tests.builders import message_of
from tests.containers import hostile_archives as tar
from tests.containers.hostile_archives import file, header, packed, pax

ONLY = "only plain files and folders are unpacked"


def refusal(archive: bytes, sha256: str | None = None, limits: Limits | None = None) -> str:
    return message_of(ArchiveRefused, read_files, io.BytesIO(archive), sha256, limits or Limits())


@pytest.mark.parametrize("format_", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_each_format_of_tar_is_read(format_: int, tmp_path: Path) -> None:
    long = "/".join(["folder-of-a-long-name"] * 7) + "/file"
    names = ["./", "./model/", "model/1/model.onnx", long]
    if format_ != tarfile.USTAR_FORMAT:
        names += ["ünï/" + "n" * 200]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", format=format_) as stream:
        for name in names:
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if name.endswith("/") else tarfile.REGTYPE
            member.size = 0 if name.endswith("/") else 300_000
            member.mode = 0o755 if name == long else 0o600
            stream.addfile(member, io.BytesIO(os.urandom(member.size)))
    unpack(io.BytesIO(buffer.getvalue()), tmp_path / "new")
    with tarfile.open(fileobj=io.BytesIO(buffer.getvalue())) as stream:
        stored = {
            member.name: content.read()
            for member in stream
            if member.isfile() and (content := stream.extractfile(member))
        }
    files = {path.relative_to(tmp_path / "new").as_posix(): path for path in (tmp_path / "new").rglob("*")}
    assert {name: path.read_bytes() for name, path in files.items() if path.is_file()} == stored
    assert files["model"].is_dir()
    assert [os.access(files[name], os.X_OK) for name in (long, "model/1/model.onnx")] == [True, False]
    assert not list(tmp_path.glob(".*"))


def test_tars_without_an_end_marker_and_several_gzip_streams_are_read() -> None:
    assert read_files(io.BytesIO(packed(file("a", b"1"), end=b"") + packed(file("b", b"2")))) == {"a": b"1", "b": b"2"}


OUT = "could lead out of the folder"
NUMBER = b"\xff" * 12
PREFIXED = tar.changed(header("x"), magic=b"ustar\00000", prefix=b"../..")
DEEP = repr("a/" * 30 + "…" + "/a" * 29 + "/b")
NO_NAME = "cannot be created (File name too long)"
ENDS = "it ends in the middle of a file"
HEADERS = "the headers of an entry have more than 8,192 bytes"
TAR = "its tar is damaged"
NO_UTF_8 = f"{TAR} ('utf-8' codec can't encode character '\\udcff' in position 1: surrogates not allowed)"
REFUSED: list[tuple[str, bytes, str]] = [
    ("a name that climbs", packed(file("a/../../b")), f"'a/../../b' {OUT}"),
    ("an absolute name", packed(file("/etc/x")), f"'/etc/x' {OUT}"),
    ("an absolute pax name", packed(pax({"path": "/etc/x"}), file("a")), f"'/etc/x' {OUT}"),
    ("a climbing long name", packed(tar.long_name(b"../x\0"), file("a")), f"'../x' {OUT}"),
    ("a climbing prefix", packed(PREFIXED), f"'../../x' {OUT}"),
    ("no name", packed(tar.changed(header("a"), name=bytes(100))), f"'' {OUT}"),
    ("a NUL in a name", packed(pax({"path": "a\0b"}), file("a")), f"'a\\x00b' {OUT}"),
    ("a symbolic link", packed(header("a", b"2", target="b")), f"'a' is a symlink; {ONLY}"),
    ("a hard link", packed(file("b"), header("a", b"1", target="b")), f"'a' is a hardlink; {ONLY}"),
    ("a pipe", packed(header("a", b"6")), f"'a' is a device; {ONLY}"),
    ("a sparse file", packed(header("a", b"S")), f"'a' is sparse; {ONLY}"),
    ("a part of several volumes", packed(header("a", b"M")), f"'a' has tar's type b'M'; {ONLY}"),
    ("a sparse file of pax", packed(pax({"GNU.sparse.major": "1"}), file("a")), f"'a' is sparse; {ONLY}"),
    ("a negative pax size", packed(pax({"size": "-1"}), file("a")), "'a' is a file of -1 bytes"),
    (
        "a path for every entry",
        packed(pax({"path": "b"}, b"g"), file("a")),
        "a pax header sets the path or the size for every entry",
    ),
    ("a header for nothing", packed(pax({"path": "a"})), f"{TAR} (end of file header)"),
    ("no UTF-8", packed(tar.long_name(b"a\xff\0"), file("a")), NO_UTF_8),
    ("too deep", packed(tar.long_name(b"a/" * 65 + b"b"), file("a")), f"{DEEP} is a name that is too long or too deep"),
    ("a part too long", packed(tar.long_name(b"a" * 256), file("a")), f"'{'a' * 60}…{'a' * 60}' {NO_NAME}"),
    ("a file twice", packed(file("a"), file("./a")), "'./a' cannot be created (File exists)"),
    ("a folder over a file", packed(file("a"), header("a/", b"5")), "'a' cannot be created (File exists)"),
    ("a file over a folder", packed(file("a/b"), file("a")), "'a' cannot be created (File exists)"),
    ("a file in a file", packed(file("a"), file("a/b/c")), "'a/b/c' cannot be created (Not a directory)"),
    ("a folder with content", packed(header("a", b"5", 3), tar.padded(b"abc")), "'a' is a folder of 3 bytes"),
    ("a damaged header", packed(file("a"), header("b")[:-1] + b"x"), "a tar header is damaged"),
    ("letters as size", packed(tar.changed(header("a"), size=b"many")), f"{TAR} (invalid header)"),
    ("a negative size", packed(tar.changed(header("a"), size=NUMBER)), "'a' is a file of -1 bytes"),
    ("an entry cut", gzip.compress(header("a", size=600) + b"x" * 512), ENDS),
    ("padding cut", gzip.compress(header("a", size=5) + b"x" * 5), ENDS),
    ("a header cut", gzip.compress(header("a")[:300]), f"{TAR} (truncated header)"),
    ("a later header cut", gzip.compress(file("a") + header("b")[:300]), "a tar header is damaged"),
    ("a long name cut", gzip.compress(header("a", b"L", 600)), f"{TAR} (empty header)"),
    ("a giant long name", gzip.compress(header("a", b"L", 1 << 30)), HEADERS),
    ("a sparse map cut", gzip.compress(tar.changed(header("a", b"S"), extended=b"\1")), f"{TAR} (index out of range)"),
    (
        "a giant sparse map",
        packed(tar.changed(header("a", b"S"), extended=b"\1"), (bytes(504) + b"\1" * 8) * 20),
        HEADERS,
    ),
    ("many headers of an entry", packed(*[pax({"comment": "x"}, b"g")] * 10), HEADERS),
    ("a second archive", packed(file("a"), end=bytes(1024) + file("b")), "data follows the end of its tar"),
    ("nothing", b"", f"{TAR} (empty file)"),
    ("no gzip", b"PK\3\4", "it is not gzip"),
    ("bytes after gzip", packed(file("a")) + b"x1", "its gzip stream is damaged"),
    ("gzip cut", packed(file("a"))[:-3], "its gzip stream ends early"),
]


def test_a_pax_header_that_is_cut_is_refused_in_the_words_of_the_pythons_tarfile() -> None:
    assert refusal(packed(header("p", b"x", 9) + tar.padded(b"99 path=a"))).startswith(f"{TAR} (")


@pytest.mark.parametrize(("archive", "why"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_an_unsafe_or_damaged_archive_is_refused_and_leaves_nothing(archive: bytes, why: str, tmp_path: Path) -> None:
    assert refusal(archive) == why
    with pytest.raises(ArchiveRefused):
        unpack(io.BytesIO(archive), tmp_path / "new")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "there").mkdir()
    with pytest.raises(ArchiveRefused):
        unpack(io.BytesIO(archive), tmp_path / "there")
    assert list((tmp_path / "there").iterdir()) == []


def test_an_archive_beyond_the_limits_is_refused() -> None:
    many = packed(*(file(f"f{number}") for number in range(10)))
    assert len(read_files(io.BytesIO(many), limits=Limits(entries=10))) == 10
    assert refusal(many, limits=Limits(entries=9)) == "it has more than 9 files and folders"
    folders = packed(*[header("a/", b"5")] * 10)
    assert refusal(folders, limits=Limits(entries=9)) == "it has more than 9 entries"
    deep = packed(file("/".join("abcdefghij")))
    assert refusal(deep, limits=Limits(entries=9)) == "it has more than 9 files and folders"
    streams = b"".join(map(gzip.compress, [file("a"), *[b""] * 10]))
    assert refusal(streams, limits=Limits(entries=9)) == "it has more than 9 gzip streams"
    size = len(file("a", b"x" * 5000)) + 1024
    assert read_files(io.BytesIO(packed(file("a", b"x" * 5000))), limits=Limits(bytes=size))
    assert (
        refusal(packed(file("a", b"x" * 5000)), limits=Limits(bytes=size - 1)) == "it unpacks to more than 6,655 bytes"
    )
    zeros = packed(file("a"), end=bytes(1 << 20))
    assert refusal(zeros, limits=Limits(bytes=1 << 20)) == "it unpacks to more than 1,048,576 bytes"


def test_a_bomb_writes_no_more_than_the_limit(tmp_path: Path) -> None:
    sizes = [0]

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            sizes.extend(path.stat().st_size for path in tmp_path.rglob("a"))
            return super().read(min(size or 400, 400))

    with pytest.raises(ArchiveRefused, match="unpacks to more than"):
        unpack(Slow(packed(file("a", bytes(16 << 20)))), tmp_path / "new", limits=Limits(bytes=3 << 20))
    assert 1 << 20 < max(sizes) <= 3 << 20
    assert list(tmp_path.iterdir()) == []


def test_an_archive_with_another_sha256_is_refused(tmp_path: Path) -> None:
    archive = packed(file("a", b"1"))
    known, other = (hashlib.sha256(content).hexdigest() for content in (archive, b""))
    unpack(io.BytesIO(archive), tmp_path / "new", known)
    message = message_of(ArchiveRefused, unpack, io.BytesIO(archive), tmp_path / "other", other)
    assert message == f"its sha256 is {known}, not {other}: it is damaged, or another archive"
    assert [path.name for path in tmp_path.iterdir()] == ["new"]


def test_the_sha256_is_read_from_the_name() -> None:
    known = "0123456789abcdef" * 4
    assert named_sha256(f"s3://assets/some/prefix/{known}.tar.gz") == known
    assert named_sha256(f"{known}.tar.gz") == known
    for other in ("model.tar.gz", f"x{known}.tar.gz", f"{known}.tar.gz.part", f"{known[1:]}.tar.gz"):
        assert named_sha256(f"s3://assets/{other}") is None


def test_a_folder_that_is_not_empty_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(OSError, match="is not empty"):
        unpack(io.BytesIO(packed(file("a"))), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_an_existing_folder_is_not_replaced(tmp_path: Path) -> None:
    before = tmp_path.stat().st_ino
    unpack(io.BytesIO(packed(file("a/b", b"1"), file("c", b"2"))), tmp_path)
    assert tmp_path.stat().st_ino == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "c"]


def test_the_folder_is_private_until_the_archive_is_checked(tmp_path: Path) -> None:
    seen: set[tuple[str, int]] = set()

    class Watched(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            seen.update((path.name[:11], path.stat().st_mode & 0o777) for path in tmp_path.iterdir())
            return super().read(size)

    unpack(Watched(packed(file("a", os.urandom(300_000)))), tmp_path / "new")
    assert seen == {(".unpacking-", 0o700)}


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Entry, "blocks", full)
    with pytest.raises(OSError, match="No space left"):
        unpack(io.BytesIO(packed(file("a/b", b"1"))), tmp_path / "new")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_entries_include_links_and_unsafe_names() -> None:
    archive = packed(header("../a", b"2", target="b"), file("c", b"123"), header("d/", b"5"))
    found = [(entry.name, entry.kind, entry.target, entry.size) for entry in entries(io.BytesIO(archive))]
    assert found == [("../a", "symlink", "b", 0), ("c", "file", "", 3), ("d", "folder", "", 0)]


@pytest.mark.parametrize("most", [0, 2, -1])
def test_an_entry_may_be_read_in_part(most: int) -> None:
    archive = packed(file("a", b"x" * 700), file("b"))
    found = [(entry.name, entry.read(most)) for entry in entries(io.BytesIO(archive))]
    assert found == [("a", b"x" * (700 if most < 0 else most)), ("b", b"")]
