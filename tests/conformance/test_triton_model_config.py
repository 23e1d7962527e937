"""Triton's qa/L0_model_config against `model_build lint`: both accept or both refuse, for the same reason.

model_config.json has each case as a minimal configuration of our own with the original's condition, by the code of the
finding that lint owes. The original runs noautofill_platform on three platforms; here it is onnxruntime_onnx.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from model_build.lint.check import lint
from model_build.lint.finding import RuntimeContext
from tests.model_build.lint.good_archives import TORCHSCRIPT, Tree, lay_out, plan

DATA = json.loads(Path(__file__).with_name("model_config.json").read_text("utf-8"))
MODEL_FILES = DATA["files"]
"""The file in every version, by a part of the case's path. The other cases have custom back ends and ensembles."""
CONTENT = {"model.pt": TORCHSCRIPT, "model.plan": plan(10, 13, 3, 9)}


def repository(case: str, models: dict[str, str | None]) -> Tree:
    """Returns a repository with one version of each model. None is no config.pbtxt."""
    file = next((MODEL_FILES[part] for part in case.split("/") if part in MODEL_FILES), None)
    tree: Tree = {}
    for name, config in models.items():
        if config is not None:
            tree[f"{name}/config.pbtxt"] = config.encode()
        if not case.endswith("/no_version"):
            tree[f"{name}/1/{file or ''}"] = CONTENT.get(file, b"") if file else None
    return tree


def cases() -> Iterator[object]:
    for rule, table in DATA["cases"].items():
        for case, models in table.items():
            reason = DATA["disagreements"].get(case)
            marks = [pytest.mark.xfail(reason=reason)] if reason else []
            yield pytest.param(case, rule, models, id=case, marks=marks)
    for reason, names in DATA["out_of_scope"].items():
        for case in names:
            yield pytest.param(case, "", {}, id=case, marks=pytest.mark.skip(reason=reason))


@pytest.mark.parametrize(("case", "rule", "models"), list(cases()))
def test_lint_agrees_with_triton(
    case: str, rule: str, models: dict[str, str | None], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    lay_out(repository(case, models), tmp_path / "repository")
    findings = lint(tmp_path / "repository", RuntimeContext())
    errors = {finding.code: finding.what for finding in findings if finding.severity == "error"}
    record_property("Triton", "accepts" if rule == "accepted" else "refuses")
    record_property("lint", "refuses" if errors else "accepts")
    assert rule in errors or (rule == "accepted" and errors == {})
