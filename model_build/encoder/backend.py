"""A BERT compiled for its target, and compared with its original."""

from collections.abc import Callable, Iterator
from pathlib import Path

from tokenizers import Tokenizer

from containers.encoder import load_engine
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from containers.encoder.row import Refusal
from containers.encoder.tensors import tensors
from model_build import bisect, layers, parity
from model_build.encoder import export, optimise, verify
from model_build.encoder.reference import Outputs, Reference
from model_build.encoder.repository import settings
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent
from model_build.repository import version_folder
from model_build.tensorrt import engines, gate
from model_build.tensorrt.compile import Toolchain
from model_build.torch_threads import threads_kept
from workloads import EncoderModel, OnnxRuntimeTarget, TensorRtTarget, TextToText, TorchScriptTarget

CALIBRATION_EXAMPLES = 128
ORIGINAL_BATCH = 32


def compile_graphs(plan: BuildPlan, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
    """Write the target's files into `graphs`; what they were made with, besides the usual tools."""
    model = _model(plan)
    match plan.target:
        case TorchScriptTarget():
            progress("Tracing")
            export.trace_checkpoint(plan.checkpoint, model, graphs)
            return {}
        case OnnxRuntimeTarget() as target:
            progress("Exporting to ONNX")
            portable = export.export_checkpoint(plan.checkpoint, model, scratch)
            progress(f"Compiling for ONNX Runtime, {target.precision}")
            optimise.optimise(portable, graphs / export.GRAPH, target, _calibration(plan))
            return {"onnx_opset": str(export.OPSET)}
        case TensorRtTarget() as target:
            found = Toolchain.find(plan.workload.name, plan.variant.target, target)
            progress("Exporting to ONNX")
            portable = export.export_checkpoint(plan.checkpoint, model, scratch)
            return engines.compile_graphs(plan, target, found, {"model": portable}, graphs, progress)
        case _:
            raise AssertionError(plan.target.runtime)  # Neuron has a room of its own


def compare(plan: BuildPlan, made: Path, progress: Progress) -> list[parity.Comparison]:
    """The repository `made`, by its own serving code, against transformers."""
    tokenise, graph = (version_folder(made, f"{plan.workload.name}_{step}") for step in ("tokenise", "model"))
    return _compare(plan, _originals(plan, progress), Preprocessor.load(tokenise), graph, progress)


def fp32_layers(plan: BuildPlan, scratch: Path, progress: Progress) -> tuple[str, ...]:
    """The layers to keep in fp32 for the gate to pass, by bisection. Raises `Fp32Fails`."""
    portable = export.export_checkpoint(plan.checkpoint, _model(plan), scratch)
    wanted, preprocessor = _originals(plan, progress), _preprocessor(plan)
    tried = scratch / "tried"
    tried.mkdir()

    def compare(folder: Path) -> list[parity.Comparison]:
        return _compare(plan, wanted, preprocessor, folder, silent)

    match plan.target:
        case TensorRtTarget() as target:
            found = Toolchain.find(plan.workload.name, plan.variant.target, target)
            return engines.fp32_layers(plan, target, found, {"model": portable}, tried, compare, progress)
        case OnnxRuntimeTarget() as target:
            return _int8_fp32_layers(plan, target, portable, tried, compare, progress)
        case _:
            raise AssertionError(plan.target.runtime)  # in fp32


def _int8_fp32_layers(
    plan: BuildPlan,
    target: OnnxRuntimeTarget,
    portable: Path,
    tried: Path,
    compare: Callable[[Path], list[parity.Comparison]],
    progress: Progress,
) -> tuple[str, ...]:
    def passes(kept: frozenset[str]) -> bool:
        progress(f"Searching for layers to keep in fp32, trying {len(kept)}")
        with_kept = target.model_copy(update={"fp32_layers": tuple(kept)})
        optimise.optimise(portable, tried / export.GRAPH, with_kept, _calibration(plan))
        return not parity.differences(parity.report(plan.workload.model.task, compare(tried)), target.parity)

    return bisect.fp32_layers(tuple(dict.fromkeys(layers.products(portable).values())), passes)


def _compare(
    plan: BuildPlan, wanted: list[Outputs], preprocessor: Preprocessor, graph: Path, progress: Progress
) -> list[parity.Comparison]:
    """`graph` is the folder with the compiled model."""
    known = settings(_model(plan), plan.target, plan.checkpoint)
    with gate.explained(plan), threads_kept():
        return verify.compare(
            wanted,
            Predictor(preprocessor, load_engine.load(graph, known)),
            plan.examples,
            batch_size=min(ORIGINAL_BATCH, plan.variant.serving.max_batch_size),
            file=plan.source.path / "evaluation.jsonl",
            progress=progress,
        )


def _originals(plan: BuildPlan, progress: Progress) -> list[Outputs]:
    """What the original gives for every example. It is let go of before the compiled model is loaded."""
    progress("Loading the original")
    return verify.originals(Reference(plan.checkpoint, _model(plan)), plan.examples, ORIGINAL_BATCH, progress)


def _model(plan: BuildPlan) -> EncoderModel:
    model = plan.workload.model
    assert not isinstance(model, TextToText)
    return model


def _preprocessor(plan: BuildPlan) -> Preprocessor:
    known = settings(_model(plan), plan.target, plan.checkpoint)
    return Preprocessor(Tokenizer.from_file(str(plan.checkpoint.tokenizer)), known)


def _calibration(plan: BuildPlan) -> Iterator[optimise.Tensors]:
    """Real rows, one at a time, for ranges of activations."""
    preprocessor = _preprocessor(plan)
    known = preprocessor.settings
    for code in preprocessor.encode([example.row for example in plan.examples[:CALIBRATION_EXAMPLES]]):
        if not isinstance(code, Refusal):
            yield tensors([code], known.inputs, known.pad_to, known.pad_token_id)
