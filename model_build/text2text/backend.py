"""The backend of T5s: compiles both graphs and compares them with Hugging Face `generate`."""

from dataclasses import replace
from pathlib import Path

from containers.text2text.generator import TextGenerator
from model_build.parity import Compare, ParityComparison
from model_build.plan import BuildPlan
from model_build.progress import Progress
from model_build.text2text import export, repository, verify
from model_build.text2text.compile import check_engines, compile_graphs, layers
from model_build.triton.repository import version_folder

__all__ = ["check_engines", "comparer", "compile_graphs", "layers", "served_folder"]


def served_folder(plan: BuildPlan, made: Path) -> Path:
    """The folder of the repository `made` from which the serving code loads the graphs."""
    return version_folder(made, plan.workload.name)


def comparer(plan: BuildPlan, made: Path, progress: Progress) -> Compare:
    """Loads the original. The serving code runs the compiled model with the tokenizer in its folder."""
    progress("Loading the checkpoint")
    original = verify.Original.load(plan.checkpoint.folder, export.load(plan.checkpoint.folder))
    known = repository.settings(plan.compile_inputs.text2text, plan.target, plan.checkpoint)
    settings = replace(known, max_batch_size=plan.variant.serving.max_batch_size)

    def compare(folder: Path, progress: Progress) -> list[ParityComparison]:
        return verify.compare(
            original,
            TextGenerator.load(folder, settings),
            plan.examples,
            batch_size=settings.max_batch_size,
            file=plan.source.path / "evaluation.jsonl",
            progress=progress,
        )

    return compare
