"""Small checkpoints with seeded random weights, and workloads of them."""

from model_build.plan import BuildPlan, plan
from workloads import WorkloadFolder, load_workload


def edited(workload: WorkloadFolder, old: str, new: str) -> WorkloadFolder:
    """Replaces a text in workload.toml and loads the workload again."""
    text = workload.file.read_text("utf-8")
    assert old in text, f"{old!r} is not in {workload.file}"
    workload.file.write_text(text.replace(old, new), "utf-8")
    return load_workload(workload.path.name, workload.path.parent)


def plan_of(workload: WorkloadFolder, name: str) -> BuildPlan:
    """Returns the plan of a target or variant in the workload's own repository."""
    return plan(workload, name, workload.path.parents[1])
