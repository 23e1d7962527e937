"""Finds and reads workloads: folders with a `workload.toml`."""

import contextlib
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, TypeVar

from workloads.document import Document, parse_toml
from workloads.errors import InvalidDocument, UsageError
from workloads.evaluation import Example, Row, example, fields_of, line_of
from workloads.files import text_lines
from workloads.hosting import SageMakerEndpointHosting
from workloads.instances import hardware
from workloads.objective import LatencyObjective, ThroughputObjective
from workloads.recommendation import BatchRecommendation, Recommendation
from workloads.serving import Variant
from workloads.target import Target
from workloads.traffic import PhasedTraffic, StairTraffic
from workloads.workload import Workload

T = TypeVar("T")
Table = TypeVar("Table", bound=Document)

CODE = Path(__file__).resolve().parent.parent
"""The folder of this project's packages: a checkout, or where they are installed."""


def project_root(start: Path) -> Path:
    """Returns the nearest folder with a cdk.json from `start` upwards, else the checkout, else `start`."""
    return next((each for each in (start, *start.parents, CODE) if (each / "cdk.json").exists()), start)


ROOT = project_root(Path.cwd())
"""The team's repository: workloads/, build/ and runs/ are in it."""


class WorkloadFolder:
    """A workload's files. `path` is the folder, `workload` its parsed workload.toml."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = path / "workload.toml"
        self.payload_file = path / "payloads.jsonl"
        self.published_name: str | None = None
        self.workload = Workload.from_toml(self.file)
        if self.workload.name != path.name:
            raise InvalidDocument(
                self.file, [f"name: got '{self.workload.name}', but the folder is called '{path.name}'."]
            )

    def target(self, name: str) -> Target:
        """Raises `UsageError` where there is none of that name."""
        return self._pick(self.workload.targets, name, "target", "targets")

    def variant(self, name: str) -> Variant:
        """Returns a variant, or a target as `serving` says. Raises `UsageError` where there is none of that name."""
        served = {deployable: self.workload.variant(deployable) for deployable in self.workload.deployables}
        return self._pick(served, name, "target", "targets")

    def hosted_on(self, target: str) -> "WorkloadFolder":
        """Returns the same folder with `target` in place of hosting.target. Raises `InvalidDocument`.

        Types to fall back on are of the other target's hardware, and are left out, as is a shadow on other hardware
        than this target's.
        """
        table = self.workload.model_dump(mode="json")
        if target != self.workload.hosting.target:
            table["hosting"].pop("fallback_instance_types", None)
            if self._shadow_is_elsewhere(target):
                table["hosting"].pop("shadow")
        table["hosting"]["target"] = target
        return self.with_table(table, self.file)

    def with_table(self, table: Mapping[str, Any], file: Path) -> "WorkloadFolder":
        """Returns the same folder with another workload.toml, which errors call `file`. Raises `InvalidDocument`."""
        other = copy(self)
        other.workload = Workload.from_table(file, table)
        return other

    def measured_on(self, target: str | None) -> "WorkloadFolder":
        """Returns the folder hosted on the target that was measured, or itself if it has no such target now."""
        return self.hosted_on(target) if target in self.workload.deployables else self

    def _shadow_is_elsewhere(self, target: str) -> bool:
        hosting, hosts = self.workload.hosting, self.workload.targets.get(self.workload.variant(target).target)
        if not isinstance(hosting, SageMakerEndpointHosting) or hosting.shadow is None or hosts is None:
            return False
        return hardware(hosting.shadow.instance_type) not in map(hardware, hosts.instance_types)

    def as_published(self, name: str) -> "WorkloadFolder":
        """Returns the same folder with the model and the requests of [published.NAME]. Raises `UsageError`."""
        published = self._pick(self.workload.published, name, "published experiment", "experiments")
        table = self.workload.model_dump(mode="json")
        table["model"] |= published.model_dump(mode="json", include={"checkpoint", "padding", "truncation"})
        table["model"].pop("backbone", None)  # the checkpoint is whole
        table["models"] = []
        if published.inputs:
            table["model"]["inputs"] = list(published.inputs)
        table["sizing"] = published.sizing.model_dump(mode="json")
        if isinstance(self.workload.objective, LatencyObjective):
            table["objective"]["rows_per_invocation"] = published.rows_per_invocation
        other = self.with_table(table, self.file)
        other.payload_file = self.path / published.payloads
        other.published_name = name
        return other

    def builds(self, root: Path) -> Path:
        """Returns the root below which its builds lie: `root`, and of a published experiment a folder of its own."""
        return root if self.published_name is None else root / "build" / "published" / self.published_name

    def traffic(self, name: str) -> PhasedTraffic | StairTraffic:
        """Raises `UsageError` where there is none of that name."""
        if not self.workload.traffic:
            raise UsageError(
                f"{self.file}: there is no traffic profile '{name}', nor any other. Write one: [traffic.{name}] with "
                'type = "phases" and phases = [{ initial_users = 1, spawn_rate_per_minute = 1, duration_s = 600 }].'
            )
        return self._pick(self.workload.traffic, name, "traffic profile", "profiles")

    def payloads(self, file: Path | None = None) -> list[Row]:
        """Returns the lines of payloads.jsonl, or of a published experiment's own file, each a real request; or those
        of another file of the same form. A line is there as often as its weight, at even distances.
        """
        name = self.payload_file.name if file is None else str(file.absolute())
        documents = self._documents(name, fields_of(self.workload.model))
        lines = [document.model_dump() for _, document in documents]
        turns = sorted(
            ((turn + 0.5) / line["weight"], number)
            for number, line in enumerate(lines)
            for turn in range(line["weight"])
        )
        return [{key: value for key, value in lines[number].items() if key != "weight"} for _, number in turns]

    def evaluation(self, file: Path | None = None) -> list[Example]:
        """Returns the lines of evaluation.jsonl or of another file. Raises `InvalidDocument`, which names the line."""
        model, line = self.workload.model, line_of(self.workload.model)
        documents = self._documents("evaluation.jsonl" if file is None else str(file.absolute()), line)
        return [example(model, file, document) for file, document in documents]

    def _documents(self, name: str, line: type[Document]) -> list[tuple[Path, Document]]:
        """Reads the lines of a file, each with its place as an error names it: payloads.jsonl:17."""
        places = ((_line(self.path / name, number), text) for number, text in _lines(self.path / name))
        return [(place, line.from_json_text(place, text)) for place, text in places]

    def place(self, name: str, index: int) -> Path:
        """Returns a row of a file as an error names it, by its index among the rows: payloads.jsonl:17."""
        return _line(self.path / name, _lines(self.path / name)[index][0])

    def _pick(self, table: Mapping[str, T], name: str, kind: str, kinds: str) -> T:
        if name not in table:
            raise UsageError(f"{self.file}: there is no {kind} '{name}'. Known {kinds}: {', '.join(table) or 'none'}.")
        return table[name]

    @property
    def recommendation_file(self) -> Path:
        return self.path / "recommendation.json"

    def recommendation(self) -> Recommendation | None:
        """Returns the reviewed recommendation of a fleet, or None when the workload has none yet, or is a batch."""
        if self._is_batch or not self.recommendation_file.exists():
            return None
        return Recommendation.from_json(self.recommendation_file)

    def batch_recommendation(self) -> BatchRecommendation | None:
        """Returns the reviewed recommendation of a batch, or None when the workload has none yet, or is no batch."""
        if not self._is_batch or not self.recommendation_file.exists():
            return None
        return BatchRecommendation.from_json(self.recommendation_file)

    @property
    def _is_batch(self) -> bool:
        return isinstance(self.workload.objective, ThroughputObjective)


def workload_names(folder: Path) -> list[str]:
    return sorted(file.parent.name for file in folder.glob("*/workload.toml"))


def load_workload(name: str, folder: Path = ROOT / "workloads") -> WorkloadFolder:
    """Reads the workload called `name`. Raises `UsageError` where there is none, or `InvalidDocument`."""
    if name not in (known := workload_names(folder)):
        raise UsageError(f"There is no workload '{name}'. Known workloads: {', '.join(known) or 'none'}.")
    return WorkloadFolder(folder / name)


def _lines(file: Path) -> list[tuple[int, str]]:
    """Returns the lines with something in them, with their numbers. Raises `InvalidDocument` where there is none."""
    lines = [(number, line) for number, line in enumerate(text_lines(file), start=1) if line.strip()]
    if not lines:
        raise InvalidDocument(file, ["has no rows. Write one JSON object a line, with the model's fields."])
    return lines


def _line(file: Path, number: int) -> Path:
    """Returns the file as an error names it: payloads.jsonl:17."""
    return file.with_name(f"{file.name}:{number}")


def with_settings(folder: WorkloadFolder, settings: Sequence[str]) -> WorkloadFolder:
    """Returns the workload with the arguments of --set TABLE.KEY=VALUE. An empty value restores the default.

    Raises `UsageError` or `InvalidDocument`.
    """
    if not settings:
        return folder
    table = folder.workload.model_dump(mode="json")
    set_keys(table, settings, "TABLE.KEY=VALUE, such as recommender.bucket=NAME")
    return folder.with_table(table, Path("--set"))


def table_with_settings(settings: Sequence[str], table: str, document: Table) -> Table:
    """Returns a table of workload.toml with the keys that `--set TABLE.KEY=VALUE` replaces. Raises `UsageError`."""
    if not settings:
        return document
    tables = {table: document.model_dump(mode="json")}
    set_keys(tables, settings, f"{table}.KEY=VALUE")
    return type(document).from_table(Path(f"--set {table}"), tables[table])


def set_keys(tables: dict[str, Any], settings: Sequence[str], allowed: str) -> None:
    """Replaces the keys of `tables` that the arguments of --set name. Raises `UsageError`."""
    for setting in settings:
        key, equals, text = setting.partition("=")
        *path, name = key.strip().split(".")
        parent: Any = tables
        for part in path:
            parent = parent.get(part) if isinstance(parent, dict) else None
        if not equals or not path or not isinstance(parent, dict):
            raise UsageError(f"--set: got '{setting}'. Allowed: {allowed}.")
        if text:
            parent[name] = _value(text, is_list=isinstance(parent.get(name), list))
        else:
            parent.pop(name, None)


def _value(text: str, *, is_list: bool) -> Any:
    """Parses a TOML value, or a list without its brackets. Other text is a string, or strings separated by commas."""
    for toml in (text, f"[{text}]") if is_list else (text,):
        with contextlib.suppress(ValueError):
            value = parse_toml(f"value = {toml}")["value"]
            return [value] if is_list and not isinstance(value, list) else value
    return text.split(",") if is_list else text.strip()
