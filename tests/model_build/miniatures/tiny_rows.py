"""A tiny model for any row of the matrix of families, in a workload that has every target of it."""

import json
from pathlib import Path

from model_build import matrix
from tests.model_build.miniatures import tiny_bart, tiny_bert, tiny_families
from workloads import Target, WorkloadFolder, load_workload


def make_workload(folder: Path, model_type: str, task: str, name: str = "tiny") -> WorkloadFolder:
    """The workload NAME below `folder`."""
    kind = {"t5": "t5-v1.1"}.get(model_type, model_type)
    if task in (matrix.GENERATION, matrix.BEAMS):
        made = tiny_bart.make_workload(folder, kind, num_beams=3 if task == matrix.BEAMS else 1)
    elif task == "text-pair-scoring":
        made = tiny_bert.make_workload(folder, task)
    else:
        made = tiny_families.make_workload(folder, model_type, task)
    text = made.file.read_text().replace('name = "tiny"', f'name = "{name}"')
    begin, end = text.index("[targets."), text.index("[serving]")
    tables = "\n".join(_table(each, target) for each, target in matrix.TARGETS.items())
    made.file.write_text(f"{text[:begin]}{tables}\n{text[end:]}")
    if name != "tiny":
        made.path.rename(folder / name)
    return load_workload(name, folder)


def _table(name: str, target: Target) -> str:
    keys = target.model_dump(mode="json", exclude_defaults=True)
    return "\n".join([f"[targets.{name}]", *(f"{key} = {json.dumps(value)}" for key, value in keys.items()), ""])
