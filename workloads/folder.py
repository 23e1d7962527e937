"""Finding and reading workload folders.

A workload is a folder with a `workload.toml`; adding one needs no code. Nothing here knows what a model is.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from workloads.document import Document
from workloads.errors import InvalidDocument, ProjectError, UnknownTarget, UnknownTraffic, UnknownWorkload
from workloads.recommendation import Recommendation
from workloads.workload import PhasedTraffic, StairTraffic, Target, Workload

T = TypeVar("T")

ROOT = Path(__file__).resolve().parent.parent


class Example(Document):
    """One labelled line of evaluation.jsonl."""

    text: str
    label: str


class WorkloadFolder:
    """One workload's files. `path` is the folder; `workload` its parsed workload.toml."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "workload.toml"
        self.workload = Workload.from_toml(self.file)
        if self.workload.name != path.name:
            raise InvalidDocument(
                self.file, [f"name: got '{self.workload.name}', but the folder is called '{path.name}'."]
            )

    def target(self, name: str) -> Target:
        return _pick(self.workload.targets, name, lambda known: UnknownTarget(self.file, name, known))

    def traffic(self, name: str) -> PhasedTraffic | StairTraffic:
        return _pick(self.workload.traffic, name, lambda known: UnknownTraffic(self.file, name, known))

    def payloads(self) -> list[str]:
        """The `text` of each line of payloads.jsonl, every one a real request."""
        file = self.path / "payloads.jsonl"
        return [Payload.from_json_text(_line(file, i), text).text for i, text in _lines(file)]

    def evaluation(self) -> list[Example]:
        file = self.path / "evaluation.jsonl"
        return [Example.from_json_text(_line(file, i), text) for i, text in _lines(file)]

    @property
    def recommendation_file(self) -> Path:
        return self.path / "recommendation.json"

    def recommendation(self) -> Recommendation | None:
        """The reviewed recommendation, or None when the workload has none yet."""
        if not self.recommendation_file.exists():
            return None
        return Recommendation.from_json(self.recommendation_file)


class Payload(Document):
    """One line of payloads.jsonl."""

    text: str


def workload_names(folder: Path) -> list[str]:
    return sorted(file.parent.name for file in folder.glob("*/workload.toml"))


def load_workload(name: str, folder: Path = ROOT / "workloads") -> WorkloadFolder:
    """The workload called `name`. Raises `UnknownWorkload` or `InvalidDocument`."""
    if name not in (known := workload_names(folder)):
        raise UnknownWorkload(name, known)
    return WorkloadFolder(folder / name)


def _pick(table: Mapping[str, T], name: str, unknown: Callable[[list[str]], ProjectError]) -> T:
    if name not in table:
        raise unknown(list(table))
    return table[name]


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidDocument(file, [f"cannot be read: {error}"]) from error
    return ((number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip())


def _line(file: Path, number: int) -> Path:
    """The file as an error names it: payloads.jsonl:17."""
    return file.with_name(f"{file.name}:{number}")
