"""The command of every graph, for both majors of TensorRT and both precisions, as golden files."""

import re
from pathlib import Path
from typing import Literal

import pytest

from model_build.tensorrt.profiles import Profile, encoder_profile, text2text_profiles
from model_build.tensorrt.trtexec import Major, command
from tests.model_build.tensorrt.tensorrt_graphs import BERTS, T5, T5_CHANNELS, T5_D_KV
from workloads import Serving, TensorRtTarget

GOLDENS = Path(__file__).parents[1] / "goldens" / "tensorrt"
SERVING = Serving(max_batch_size=16, preferred_batch_sizes=(4, 8))
T5_PROFILES = text2text_profiles(T5, SERVING, channels=T5_CHANNELS, d_kv=T5_D_KV)
GRAPHS: dict[str, tuple[Profile, ...]] = {
    "t5-encoder": T5_PROFILES["encoder"],
    "t5-decoder": T5_PROFILES["decoder"],
    "bert-three-inputs": (encoder_profile(BERTS["classification"], SERVING),),
    "bert-five-inputs": (encoder_profile(BERTS["scoring"], SERVING),),
}
MAJORS: tuple[Major, ...] = ("10", "11")
# What trtexec 11 takes out of sampleOptions.cpp at commit d5883286, as far as a build needs it.
FLAGS_OF_11 = {
    "--onnx",
    "--saveEngine",
    "--minShapes",
    "--optShapes",
    "--maxShapes",
    "--noTF32",
    "--builderOptimizationLevel",
    "--timingCacheFile",
    "--skipInference",
}


def make(graph: str, precision: Literal["fp32", "fp16"], tensorrt: Major) -> list[str]:
    target = TensorRtTarget(runtime="tensorrt", precision=precision, instance_types=("ml.g4dn.xlarge",))
    return command(
        Path(f"{graph}.{precision}.onnx"),
        Path(f"{graph}.7.5.plan"),
        GRAPHS[graph],
        target,
        tensorrt=tensorrt,
        timing_cache=Path("timing.cache"),
    )


@pytest.mark.parametrize("tensorrt", MAJORS)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_command_is_the_golden_file(graph: str, precision: Literal["fp32", "fp16"], tensorrt: Major) -> None:
    text = "\n".join(make(graph, precision, tensorrt)) + "\n"
    golden = GOLDENS / f"{graph}.{precision}.tensorrt-{tensorrt}.txt"
    if not golden.exists() or golden.read_text() != text:
        golden.write_text(text)
        pytest.fail(f"{golden} was rewritten: look at the difference and run again")


@pytest.mark.parametrize("graph", GRAPHS)
def test_tensorrt_11_is_given_no_flag_that_it_dropped_or_deprecated(graph: str) -> None:
    given = {argument.split("=")[0] for argument in make(graph, "fp16", "11")[1:]}
    assert given - {"--profile"} == FLAGS_OF_11
    assert ("--profile" in given) == (len(GRAPHS[graph]) > 1)


@pytest.mark.parametrize("graph", GRAPHS)
def test_tensorrt_10_differs_in_taking_types_from_the_graph(graph: str) -> None:
    assert set(make(graph, "fp16", "10")) - set(make(graph, "fp16", "11")) == {"--stronglyTyped"}


@pytest.mark.parametrize("graph", GRAPHS)
def test_shapes_are_written_as_trtexec_parses_them(graph: str) -> None:
    pattern = re.compile(r"--(min|opt|max)Shapes=([a-z_]+:\d+(x\d+)*)(,[a-z_]+:\d+(x\d+)*)*")
    assert [bool(pattern.fullmatch(argument)) for argument in make(graph, "fp32", "10")].count(True) == 3 * len(
        GRAPHS[graph]
    )


def test_the_optimisation_level_is_the_targets() -> None:
    target = TensorRtTarget(runtime="tensorrt", instance_types=("ml.g5.xlarge",), builder_optimization_level=5)
    made = command(Path("g"), Path("e"), [{}], target, tensorrt="11", timing_cache=Path("c"), program="/opt/trtexec")
    assert made[0] == "/opt/trtexec"
    assert "--builderOptimizationLevel=5" in made
