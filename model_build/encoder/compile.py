"""A BERT compiled for its target, and compared with its original."""

from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from containers.encoder import engine
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor, tensors
from containers.encoder.row import Refusal
from model_build import bisect, parity
from model_build.encoder import bert, export, optimise, verify
from model_build.encoder.reference import Reference
from model_build.encoder.repository import settings
from model_build.plan import BuildPlan
from model_build.progress import Progress, silent
from model_build.repository import version_folder
from model_build.tensorrt import engines
from model_build.tensorrt.compile import Toolchain
from workloads import OnnxRuntimeTarget, TensorRtTarget, TextToText, TorchScriptTarget

CALIBRATION_EXAMPLES = 128
ORIGINAL_BATCH = 32


def compile_graphs(plan: BuildPlan, graphs: Path, scratch: Path, progress: Progress) -> dict[str, str]:
    """Write the target's files into `graphs`; what they were made with, besides the usual tools."""
    model = plan.workload.model
    assert not isinstance(model, TextToText)
    progress("Loading the checkpoint")
    network = bert.load(plan.checkpoint, model)
    match plan.target:
        case TorchScriptTarget():
            progress("Tracing")
            export.trace(network, graphs)
            return {}
        case OnnxRuntimeTarget() as target:
            progress("Exporting to ONNX")
            portable = export.export_onnx(network, scratch)
            del network  # A build needs room for the weights a few times over, not once for each step.
            progress(f"Compiling for ONNX Runtime, {target.precision}")
            optimise.optimise(portable, graphs / export.GRAPH, target, _calibration(plan))
            return {"onnx_opset": str(export.OPSET)}
        case TensorRtTarget() as target:
            found = Toolchain.find(plan.workload.name, plan.variant.target, target)
            progress("Exporting to ONNX")
            portable = export.export_onnx(network, scratch)
            del network
            return engines.compile_graphs(plan, target, found, {"model": portable}, graphs, progress)
        case _:
            raise AssertionError(plan.target.runtime)  # Neuron has a room of its own


def compare(plan: BuildPlan, made: Path, progress: Progress) -> list[parity.Comparison]:
    """The repository `made`, by its own serving code, against transformers."""
    model = plan.workload.model
    assert not isinstance(model, TextToText)
    known = settings(model, plan.target, plan.checkpoint)
    tokenise, graph = (version_folder(made, f"{plan.workload.name}_{step}") for step in ("tokenise", "model"))
    progress("Loading the original")
    compiled = Predictor(Preprocessor.load(tokenise), engine.load(graph, known))
    return _compare(plan, Reference(plan.checkpoint, model), compiled, progress)


def _compare(plan: BuildPlan, reference: Reference, compiled: Predictor, progress: Progress) -> list[parity.Comparison]:
    return verify.compare(
        reference,
        compiled,
        plan.examples,
        batch_size=min(ORIGINAL_BATCH, plan.variant.serving.max_batch_size),
        file=plan.source.path / "evaluation.jsonl",
        progress=progress,
    )


def fp32_layers(plan: BuildPlan, scratch: Path, progress: Progress) -> tuple[str, ...]:
    """The layers to keep in fp32 for the gate to pass, by bisection. Raises `Fp32Fails`."""
    model, target = plan.workload.model, plan.target
    assert not isinstance(model, TextToText)
    assert isinstance(target, OnnxRuntimeTarget)
    portable = export.export_onnx(bert.load(plan.checkpoint, model), scratch)
    reference, known = Reference(plan.checkpoint, model), settings(model, target, plan.checkpoint)
    tried = scratch / "tried"
    tried.mkdir()

    def passes(kept: frozenset[str]) -> bool:
        progress(f"Searching for layers to keep in fp32, trying {len(kept)}")
        with_kept = target.model_copy(update={"fp32_layers": tuple(kept)})
        optimise.optimise(portable, tried / export.GRAPH, with_kept, _calibration(plan))
        comparisons = _compare(plan, reference, Predictor(_preprocessor(plan), engine.load(tried, known)), silent)
        return not parity.differences(parity.report(model.task, comparisons), target.parity)

    layers = tuple(dict.fromkeys(optimise.products(portable).values()))
    return bisect.fp32_layers(layers, passes)


def _preprocessor(plan: BuildPlan) -> Preprocessor:
    model = plan.workload.model
    assert not isinstance(model, TextToText)
    known = settings(model, plan.target, plan.checkpoint)
    return Preprocessor(Tokenizer.from_file(str(plan.checkpoint.tokenizer)), known)


def _calibration(plan: BuildPlan) -> Iterator[optimise.Tensors]:
    """Real rows, one at a time, for ranges of activations."""
    preprocessor = _preprocessor(plan)
    known = preprocessor.settings
    for code in preprocessor.encode([example.row for example in plan.examples[:CALIBRATION_EXAMPLES]]):
        if not isinstance(code, Refusal):
            yield tensors([code], known.inputs, known.pad_to, known.pad_token_id)
