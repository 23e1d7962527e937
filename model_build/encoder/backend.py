"""The backend of BERTs: compiles the graph and compares it with the original as transformers runs it."""

from pathlib import Path

from containers.encoder import load_engine
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from model_build.encoder import verify
from model_build.encoder.compile import check_engines, compile_graphs, layers
from model_build.encoder.graphs import settings
from model_build.encoder.reference import Reference
from model_build.parity import Compare, ParityComparison
from model_build.plan import BuildPlan
from model_build.progress import Progress
from model_build.torch_threads import threads_kept
from model_build.triton.repository import version_folder

__all__ = ["check_engines", "comparer", "compile_graphs", "layers", "served_folder"]

ORIGINAL_BATCH = 32


def served_folder(plan: BuildPlan, made: Path) -> Path:
    """The folder of the repository `made` from which the serving code loads the graph."""
    return version_folder(made, f"{plan.workload.name}_model")


def comparer(plan: BuildPlan, made: Path, progress: Progress) -> Compare:
    """Runs the original over every example; it is released before a compiled model is loaded."""
    progress("Loading the original")
    model = plan.compile_inputs.encoder
    wanted = verify.originals(Reference(plan.checkpoint, model), plan.examples, ORIGINAL_BATCH, progress)
    preprocessor = Preprocessor.load(version_folder(made, f"{plan.workload.name}_tokenise"))
    known = settings(model, plan.target, plan.checkpoint)

    def compare(folder: Path, progress: Progress) -> list[ParityComparison]:
        with threads_kept():
            return verify.compare(
                wanted,
                Predictor(preprocessor, load_engine.load(folder, known)),
                plan.examples,
                batch_size=min(ORIGINAL_BATCH, plan.variant.serving.max_batch_size),
                file=plan.source.path / "evaluation.jsonl",
                progress=progress,
            )

    return compare
