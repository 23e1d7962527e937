"""The command of every graph, for both majors of TensorRT and both precisions, as golden files."""

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


def make(graph: str, precision: Literal["fp32", "fp16"], tensorrt: Major) -> list[str]:
    target = TensorRtTarget(runtime="tensorrt", precision=precision, instance_types=("ml.g4dn.xlarge",))
    source, engine = Path(f"{graph}.{precision}.onnx"), Path(f"{graph}.7.5.plan")
    return command(source, engine, GRAPHS[graph], target, tensorrt=tensorrt, timing_cache=Path("timing.cache"))


@pytest.mark.parametrize("tensorrt", MAJORS)
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_command_is_the_golden_file(graph: str, precision: Literal["fp32", "fp16"], tensorrt: Major) -> None:
    text = "\n".join(make(graph, precision, tensorrt)) + "\n"
    golden = GOLDENS / f"{graph}.{precision}.tensorrt-{tensorrt}.txt"
    if not golden.exists() or golden.read_text() != text:
        golden.write_text(text)
        pytest.fail(f"{golden} was rewritten: look at the difference and run again")
