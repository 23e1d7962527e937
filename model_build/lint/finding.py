"""A finding, with its texts from rules.toml, and the known facts about where an archive will run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, cast

from workloads.document import parse_toml
from workloads.images import version_in
from workloads.instances import NEURON_FAMILIES, family, hardware

Severity = Literal["error", "warning"]
"""An error keeps the endpoint from starting or from answering; a warning costs money, time or safety."""
RULES: Mapping[str, Mapping[str, str]] = parse_toml(Path(__file__).with_name("rules.toml").read_text("utf-8"))
"""Severity and texts of each rule. The part of a name after the slash is a case of the rule."""


NO_HOST_AMI = "none"
"""`RuntimeContext.host_ami` of a variant without an InferenceAmiVersion; None is unknown."""


class FindingPlace(NamedTuple):
    file: str
    """A path inside the archive, the archive itself, a payload file, or `environment`."""
    line: int | None = None
    key: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    code: str
    """Stable and short, for filters: `name-mismatch`."""
    severity: Severity
    what: str
    file: str
    line: int | None = None
    key: str | None = None
    why: str
    fix: str

    @property
    def where(self) -> str:
        """spellcheck/config.pbtxt:12: dynamic_batching."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return place if self.key is None else f"{place}: {self.key}"


def finding(rule: str, place: FindingPlace, **values: object) -> Finding:
    """Returns the finding of a rule; `values` fill the places in its texts."""
    texts = RULES[rule]
    return Finding(
        code=rule.partition("/")[0],
        severity=cast(Severity, texts["severity"]),
        what=texts["what"].format(**values),
        file=place.file,
        line=place.line,
        key=place.key,
        why=texts["why"].format(**values),
        fix=texts["fix"].format(**values),
    )


def listing(names: Sequence[str], shown: int = 3) -> str:
    """Returns the first names and the number of the others."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(f"'{name}'" for name in names[:shown]) + more


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeContext:
    image: str | None = None
    """The Triton image: yy.mm, a tag such as 25.09-py3-cpu, or a whole URI."""
    tensorrt_version: str | None = None
    """Version of the TensorRT inside the image."""
    instance_types: tuple[str, ...] | None = None
    host_ami: str | None = None
    """The variant's InferenceAmiVersion, or `NO_HOST_AMI`."""
    environment: Mapping[str, str] | None = None
    """All variables that the container gets."""
    payloads: tuple[Path, ...] | None = None
    """Files of requests: rows or KServe v2 JSON bodies, one per line of a .jsonl, or one body per file."""
    toolchain: Mapping[str, str] | None = None
    """The toolchain of artifact.json, of which `tensorrt` and `compute_capability` are read."""

    @property
    def triton_version(self) -> str | None:
        """The release, such as 25.09, in any spelling of the image; None if the image does not contain it."""
        return version_in(self.image or "")

    @property
    def cpu_image(self) -> bool:
        return self.image is not None and self.image.endswith("-cpu")

    @property
    def gpu_types(self) -> list[str]:
        return [name for name in self.instance_types or () if hardware(name) == "GPU"]


def has_neuron_cores(instance_type: str) -> bool:
    return family(instance_type) in NEURON_FAMILIES.values()


def unmade_checks(context: RuntimeContext) -> Mapping[str, str]:
    """Returns the checks that `lint` skips in this context, with the facts that each needs."""
    known = {
        "the image": context.image,
        "the image's TensorRT version": context.tensorrt_version,
        "the instance types": context.instance_types,
        "the host AMI": context.host_ami,
        "the environment": context.environment,
        "payload files": context.payloads,
    }
    checks = {
        "the default model (and, among several, payloads against it), verbose logging, shared memory": (
            "the environment",
        ),
        "the device each model runs on, the GPU each TensorRT plan was built for": ("the instance types",),
        "the driver that the image meets": ("the image", "the instance types", "the host AMI"),
        "TensorRT plans against the image's TensorRT": ("the image's TensorRT version",),
        "payloads against the model's signature": ("payload files",),
    }
    types = context.instance_types or ()
    if types and all(map(has_neuron_cores, types)):  # a model for Neuron runs without Triton
        return {}
    lacking = {check: [fact for fact in needs if known[fact] is None] for check, needs in checks.items()}
    return {check: ", ".join(facts) for check, facts in lacking.items() if facts}
