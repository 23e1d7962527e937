"""The folder of a search for the best configuration: what it searches, and every probe in the order of their making.

The search is a function of its probes' answers. So one that was interrupted is run again from its beginning, and its
probes are answered from the folder as far as they go (`Remembered`); only then the server is asked.
"""

import json
from collections.abc import Callable
from pathlib import Path

from inference_recommender.run_folder import RunFolder
from inference_recommender.tune.evidence import Glimpse
from inference_recommender.tune.race import Probe, Refused
from inference_recommender.tune.result import TuneResult
from inference_recommender.tune.space import Configuration, LeftOut
from workloads import UsageError, Workload
from workloads.document import Document
from workloads.errors import InvalidDocument
from workloads.files import from_here, replace_text

PLAN, PROBES, RESULT, PATCH = "tune.json", "probes.jsonl", "result.json", "patch.toml"


class TunePlan(Document):
    """The content of tune.json: what is searched."""

    workload: str
    configurations: tuple[Configuration, ...]
    left_out: tuple[LeftOut, ...]
    archives: dict[str, str]
    """sha256 of each target's archive."""
    instance_type: str | None
    longest_s: float


class Line(Document):
    """A probe and its answer: either of the last two is set."""

    label: str
    invocations_per_minute: float
    duration_s: float
    seen: Glimpse | None = None
    refused: str | None = None


class TuneFolder:
    """Files: tune.json, workload.json, payloads.tar.gz, probes.jsonl, probes/ with each one's records, triton.log,
    result.json, patch.toml."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._run = RunFolder(path)

    def __str__(self) -> str:
        """Returns the path from the working folder, where it lies below it."""
        return str(from_here(self.path))

    def begin(self, plan: TunePlan, workload: Workload, payloads: bytes) -> None:
        self._run.keep_workload(workload)
        self._run.keep_bytes("payloads.tar.gz", payloads)
        plan.write_json(self.path / PLAN)

    def plan(self) -> TunePlan:
        """Raises `UsageError` or `InvalidDocument`."""
        if not (self.path / PLAN).exists():
            raise UsageError(f"--resume: {self} is no folder of tune: it has no {PLAN}.")
        return TunePlan.from_json(self.path / PLAN)

    def workload(self) -> Workload:
        return self._run.workload()

    @property
    def payloads(self) -> Path:
        return self.path / "payloads.tar.gz"

    def lines(self) -> list[Line]:
        """Returns the probes so far; a last one that was cut off does not count."""
        file = self.path / PROBES
        if not file.exists():
            return []
        texts = file.read_text("utf-8").splitlines()
        try:
            json.loads(texts[-1] if texts else "{}")
        except ValueError:
            texts.pop()
        return [Line.from_json_text(file, text) for text in texts]

    def append(self, line: Line) -> None:
        with (self.path / PROBES).open("a", encoding="utf-8") as file:
            file.write(line.model_dump_json() + "\n")

    def rewrite(self, lines: list[Line]) -> None:
        """Writes the probes anew, without what was cut off."""
        replace_text(self.path / PROBES, "".join(each.model_dump_json() + "\n" for each in lines))

    def keep(self, found: TuneResult, patch: str | None) -> None:
        found.write_json(self.path / RESULT)
        if patch is not None:
            replace_text(self.path / PATCH, patch)


def remembered(folder: TuneFolder, ask: Probe, told: Callable[[Line, int], None]) -> Probe:
    """Returns a probe that answers from the folder as far as it goes, and then asks and keeps what it hears.

    `told` hears of each new probe, with its number. Raises `InvalidDocument` where the folder's probes are others
    than the search makes.
    """
    known = folder.lines()
    folder.rewrite(known)
    count = 0

    def probe(configuration: Configuration, rate: float, duration_s: float) -> Glimpse:
        nonlocal count
        count += 1
        if count <= len(known):
            line = known[count - 1]
            if (line.label, line.invocations_per_minute, line.duration_s) != (configuration.label, rate, duration_s):
                problem = f"probe {count} is not the one that this version of tune makes there; start a new search."
                raise InvalidDocument(folder.path / PROBES, [problem])
        else:
            line = _asked(ask, configuration, rate, duration_s)
            folder.append(line)
            told(line, count)
        if line.seen is None:
            raise Refused(line.refused or "")
        return line.seen

    return probe


def _asked(ask: Probe, configuration: Configuration, rate: float, duration_s: float) -> Line:
    line = Line(label=configuration.label, invocations_per_minute=rate, duration_s=duration_s)
    try:
        return line.model_copy(update={"seen": ask(configuration, rate, duration_s)})
    except Refused as refused:
        return line.model_copy(update={"refused": str(refused)})
