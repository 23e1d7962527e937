"""Engines: the shapes that they are built for, and trtexec and nvidia-smi that check their arguments."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from containers.text2text.tensorrt_plan import plan_name
from model_build.progress import Progress, silent
from model_build.tensorrt.profiles import Profile, Range, encoder_profile, text2text_profiles
from model_build.tensorrt.trtexec import Toolchain, compile_engine
from tests.builders import failure_of, message_of
from tests.containers import fake_tensorrt
from tests.model_build.tensorrt.gpu_machine import A10G, NVIDIA_SMI, T4, install, install_all
from tests.model_build.tensorrt.tensorrt_graphs import BERTS, FIVE_INPUTS, T5, t5
from workloads import Serving, TensorRtTarget, Unavailable

PROFILE: Profile = {"input_ids": Range(min=(1, 1), opt=(4, 8), max=(8, 16))}
TARGET = TensorRtTarget(
    runtime="tensorrt",
    precision="fp16",
    instance_types=("ml.g4dn.xlarge", "ml.g5.xlarge"),
    builder_optimization_level=4,
)
Change = Callable[[Path], None]


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all of PATH, and Python's packages for TensorRT 10.4.0."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    fake_tensorrt.install(monkeypatch, fake_tensorrt.Gpu())
    return folder


def find() -> Toolchain:
    return Toolchain.find("spellcheck", "gpu", TARGET)


def built(graph: Path, engine: Path, progress: Progress = silent) -> None:
    compile_engine(graph, engine, [PROFILE], TARGET, find(), engine.parent / "timing", progress)


def graph(folder: Path, text: str = "graph") -> Path:
    file = folder / "encoder.onnx"
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("version", "tensorrt", "major"), [("v100400", "10.4.0.26", "10"), ("v110201", "11.2.1.26", "11")]
)
def test_an_engine_is_built_and_its_builder_recorded(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, tensorrt: str, major: str
) -> None:
    install_all(tools, version=version)
    monkeypatch.setattr(sys.modules["tensorrt"], "__version__", tensorrt)
    toolchain = find()
    gpu = {"gpu": "Tesla T4", "compute_capability": "7.5", "driver": "535.104.05"}
    assert (toolchain.major, toolchain.record()) == (major, {"tensorrt": tensorrt, **gpu})
    engine = tmp_path / plan_name("encoder", toolchain.compute_capability)
    steps: list[str] = []
    built(graph(tmp_path), engine, steps.append)
    head, _, rest = engine.read_bytes()[fake_tensorrt.HEADER_BYTES :].decode().partition("\n")
    assert json.loads(head)["profiles"] == [{"input_ids": [[1, 1], [4, 8], [8, 16]]}]
    assert rest == "graph"
    assert steps == [f"Building encoder.7.5.plan with TensorRT {tensorrt} on Tesla T4"]


def test_engines_share_a_timing_cache_and_have_a_log_each(tools: Path, tmp_path: Path) -> None:
    install_all(tools)
    for stem in ("encoder", "decoder"):
        built(graph(tmp_path), tmp_path / f"{stem}.7.5.plan")
    assert (tmp_path / "timing" / "7.5.10.4.0.26.cache").read_text() == "timed timed "
    assert (tmp_path / "decoder.7.5.plan.log").read_text().startswith("&&&& RUNNING TensorRT.trtexec")


@pytest.mark.parametrize("installed", ["10.4.0.26", "10.4.0.26.post1"])
def test_without_trtexec_the_python_package_builds(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed: str
) -> None:
    """`pip install tensorrt-cu12` has no trtexec."""
    install(tools, "nvidia-smi", NVIDIA_SMI.format(said=T4, status=0))
    monkeypatch.setattr(sys.modules["tensorrt"], "__version__", installed)
    toolchain = find()
    assert (toolchain.trtexec, toolchain.tensorrt, toolchain.major) == (None, "10.4.0.26", "10")
    engine = tmp_path / "encoder.7.5.plan"
    onnx.save(t5(False)["encoder"], tmp_path / "encoder.onnx")
    profile: Profile = dict.fromkeys(("input_ids", "attention_mask"), PROFILE["input_ids"])
    compile_engine(tmp_path / "encoder.onnx", engine, [profile], TARGET, toolchain, tmp_path / "timing")
    fake_tensorrt.write_plan(tmp_path / "expected", t5(False)["encoder"], [profile], capability="7.5")
    assert engine.read_bytes() == (tmp_path / "expected").read_bytes()
    arguments = (tmp_path / "encoder.onnx", engine, [PROFILE], TARGET, toolchain, tmp_path / "timing")
    assert message_of(Unavailable, compile_engine, *arguments) == (
        "TensorRT could not build an engine from encoder.onnx: profile 0 has shapes for input_ids; those of "
        "attention_mask, input_ids vary"
    )


def test_the_first_of_several_gpus_is_the_one_that_trtexec_takes(tools: Path) -> None:
    install_all(tools, gpu=f"{A10G}\n{T4}")
    assert (find().gpu, find().compute_capability) == ("NVIDIA A10G", "8.6")


def prints(gpu: str, status: int = 0) -> Change:
    """Installs an nvidia-smi and no trtexec."""
    return lambda tools: install(tools, "nvidia-smi", NVIDIA_SMI.format(said=gpu, status=status))


def no_package(tools: Path) -> None:
    sys.modules["tensorrt"] = None  # type: ignore[assignment]  # the fixture restores it


def package(version: str) -> Change:
    return lambda tools: vars(sys.modules["tensorrt"]).update(__version__=version)


NEEDS = "spellcheck for gpu needs a machine with an NVIDIA GPU and TensorRT:"
ELSEWHERE = (
    "An engine is built on the GPU it will run on. Build it on one with `python -m model_build build spellcheck "
    "--target gpu --on sagemaker`."
)
GATE = "The parity gate runs engines from Python, and"
THAT_VERSION = (
    "A plan loads only in the TensorRT that built it: install that very version with `pip install "
    "'tensorrt==10.4.0.26.*' cuda-bindings`."
)
REFUSALS: dict[str, tuple[list[Change], str]] = {
    "no GPU": ([], f"{NEEDS} nvidia-smi is not on PATH. {ELSEWHERE}"),
    "a driver that does not answer": (
        [prints("No devices were found", 6)],
        f"{NEEDS} nvidia-smi ended with 6 and printed 'No devices were found'. {ELSEWHERE}",
    ),
    "an old package": (
        [prints(T4), package("8.6.1")],
        "The Python package tensorrt is 8.6.1. Allowed: 10.x and 11.x. Install one of them.",
    ),
    "no trtexec and no package": (
        [prints(T4), no_package],
        f"{NEEDS} trtexec is neither on PATH nor /usr/src/tensorrt/bin/trtexec, and Python cannot build instead "
        f"(import of tensorrt halted; None in sys.modules). {ELSEWHERE}",
    ),
    "a GPU of another target": (
        [lambda tools: install_all(tools, gpu="NVIDIA H200, 9.0, 570.86.15")],
        "targets.gpu: this machine's NVIDIA H200 has compute capability 9.0, and an engine built here would load "
        "nowhere else. The target's instance types have 7.5 and 8.6. Build on one of them, or change "
        "targets.gpu.instance_types.",
    ),
    "an old TensorRT": (
        [lambda tools: install_all(tools, version="v8601")],
        "{tools}/trtexec prints no TensorRT version that this project has a command for. Got: '&&&& RUNNING "
        "TensorRT.trtexec [TensorRT v8601] [b26] # {tools}/trtexec --help'. Allowed: 10.x and 11.x. Build in the "
        "Triton image that will serve the engine.",
    ),
    "trtexec without the package": (
        [install_all, no_package],
        f"{GATE} they cannot be imported (import of tensorrt halted; None in sys.modules). {THAT_VERSION}",
    ),
    **{
        f"trtexec and the package {version}": (  # TensorRT compares all four parts of a plan's version
            [install_all, package(version)],
            f"{GATE} the package is TensorRT {version}, but {{tools}}/trtexec is 10.4.0.26. {THAT_VERSION}",
        )
        for version in ("10.13.3.9", "10.4.0.27")
    },
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_machine_that_cannot_build_is_refused(tools: Path, name: str) -> None:
    changes, message = REFUSALS[name]
    for change in changes:
        change(tools)
    assert failure_of(Unavailable, find) == (message.format(tools=tools), 3)


def test_a_failed_build_shows_trtexecs_last_lines_and_keeps_an_older_engine(tools: Path, tmp_path: Path) -> None:
    install_all(tools)
    engine = tmp_path / "encoder.7.5.plan"
    engine.write_text("older")
    lines = message_of(Unavailable, built, graph(tmp_path, "broken"), engine).splitlines()
    assert lines[0] == "trtexec could not build an engine from encoder.onnx: it ended with 1. Its last lines:"
    assert lines[2:5] == [
        "  [11/21/2026-04:00:00] [I] Start parsing network model.",
        "  [11/21/2026-04:00:01] [E] Failed to parse onnx file",
        "  [11/21/2026-04:00:01] [E] Engine set up failed",
    ]
    assert lines[-1] == f"All of its output is in {engine}.log."
    assert not list(tmp_path.glob(".*.part"))
    assert engine.read_text() == "older"


@pytest.mark.parametrize(("build", "tensorrt"), [("[b26] ", "10.4.0.26"), ("", "10.4.0")])
def test_a_version_has_three_parts_or_four_and_may_be_packaged_again(
    tools: Path, monkeypatch: pytest.MonkeyPatch, build: str, tensorrt: str
) -> None:
    install_all(tools)
    trtexec = tools / "trtexec"
    trtexec.write_text(trtexec.read_text().replace("[b26] ", build))
    monkeypatch.setattr(sys.modules["tensorrt"], "__version__", "10.4.0.26.post1")
    assert find().tensorrt == tensorrt


BATCHED = Serving(max_batch_size=16, preferred_batch_sizes=(4, 8))


def ranges(profile: Profile) -> dict[str, tuple[tuple[int, ...], ...]]:
    return {name: (shapes.min, shapes.opt, shapes.max) for name, shapes in profile.items()}


def test_a_berts_inputs_have_the_workloads_order_lengths_and_batches() -> None:
    """valid_length is one number per row. If every request is padded, there is no shorter shape."""
    everything = ((1, 1), (8, 32), (16, 32))
    profile = ranges(encoder_profile(BERTS["scoring"], BATCHED))
    assert tuple(profile) == FIVE_INPUTS
    assert profile == dict.fromkeys(FIVE_INPUTS, everything) | {"valid_length": ((1,), (8,), (16,))}
    padded = BERTS["answering"].model_copy(update={"padding": "max_length"})
    assert ranges(encoder_profile(padded, BATCHED))["input_ids"] == ((1, 32), (8, 32), (16, 32))


def test_a_t5_has_a_profile_for_one_short_row_and_one_for_the_batches() -> None:
    profiles = text2text_profiles(T5, BATCHED, channels=16, d_kv=8)
    one, batches = ((1, 16), (1, 16), (1, 24)), ((2, 16), (8, 24), (16, 24))
    assert [ranges(profile) for profile in profiles["encoder"]] == [
        {"input_ids": sizes, "attention_mask": sizes} for sizes in (one, batches)
    ]
    assert [ranges(profile) for profile in profiles["decoder"]] == [
        {
            "tokens": tuple((rows, 1) for rows, _ in sizes),
            "cross_bias": tuple((rows, 1, 1, source) for rows, source in sizes),
            "cross": tuple((rows, 16, source, 8) for rows, source in sizes),
            "past": tuple((rows, 16, 12, 8) for rows, _ in sizes),
        }
        for sizes in (one, batches)
    ]


def test_a_t5_that_takes_one_row_has_no_profile_for_batches() -> None:
    profiles = text2text_profiles(T5, Serving(max_batch_size=1), channels=16, d_kv=8)
    assert [len(profile) for profile in profiles.values()] == [1, 1]


def test_kernels_are_timed_for_one_row_where_no_batch_is_asked_for() -> None:
    alone = Serving(max_batch_size=16, preferred_batch_sizes=(8,), dynamic_batching=False)
    assert encoder_profile(BERTS["answering"], alone)["input_ids"].opt == (1, 32)
    assert encoder_profile(BERTS["answering"], Serving(max_batch_size=16))["input_ids"].opt == (1, 32)
