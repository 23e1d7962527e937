"""config.pbtxt says to Triton what workload.toml says to people."""

from pathlib import Path

import pytest
from google.protobuf import text_format  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2

from containers.text2text.settings import Settings
from model_build.triton.config_pbtxt import EnsembleStep, ModelConfig, Tensor, WarmUp, render, warm_up_sizes
from workloads import InstanceGroup, Serving

GOLDEN = Path(__file__).parent / "goldens" / "config.pbtxt"
SETTINGS = Settings(
    max_input_tokens=64,
    max_output_tokens=48,
    decoder_start_token_id=0,
    eos_token_ids=(1, 2),
    pad_token_id=3,
    threads=2,
)
TEXT = Tensor(name="TEXT", data_type="TYPE_STRING", dims=(1,))
CORRECTED = Tensor(name="CORRECTED", data_type="TYPE_STRING", dims=(1,))
SERVING = Serving(max_batch_size=16, preferred_batch_sizes=(4, 8), max_queue_delay_ms=0.5, model_instances=2)

positive = st.integers(1, 2**31 - 1)
token = st.integers(0, 2**31 - 1)
settings = st.builds(
    Settings,
    max_input_tokens=positive,
    max_output_tokens=positive,
    decoder_start_token_id=token,
    eos_token_ids=st.lists(token, min_size=1, max_size=4).map(tuple),
    pad_token_id=token,
    threads=positive,
)


@st.composite
def servings(draw: st.DrawFn) -> Serving:
    largest = draw(st.integers(1, 512))
    return Serving(
        max_batch_size=largest,
        preferred_batch_sizes=tuple(draw(st.lists(st.integers(1, largest), max_size=3))),
        max_queue_delay_ms=draw(st.floats(0, 10_000)),
        model_instances=draw(st.integers(1, 64)),
    )


def python_model(name: str, serving: Serving, settings: Settings) -> str:
    return render(
        ModelConfig(
            name=name,
            backend="python",
            max_batch_size=serving.max_batch_size,
            inputs=(TEXT,),
            outputs=(CORRECTED,),
            serving=serving,
            parameters=settings.to_parameters(),
            warm_ups=tuple(
                WarmUp(batch_size=size, tensors={"TEXT": (TEXT, "text")}) for size in warm_up_sizes(serving)
            ),
        )
    )


def parse(text: str) -> model_config_pb2.ModelConfig:
    return text_format.Parse(text, model_config_pb2.ModelConfig())


def test_the_text_is_the_golden_file() -> None:
    text = python_model("spellcheck", SERVING, SETTINGS)
    if not GOLDEN.exists() or GOLDEN.read_text() != text:
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text)
        pytest.fail(f"{GOLDEN} was rewritten: look at the difference and run again")


def test_triton_reads_an_ordinary_python_backend_model() -> None:
    config = parse(python_model("spellcheck", SERVING, SETTINGS))
    tensors = [(t.name, t.data_type, list(t.dims)) for t in (*config.input, *config.output)]
    assert (config.name, config.backend) == ("spellcheck", "python")
    assert tensors == [("TEXT", model_config_pb2.TYPE_STRING, [1]), ("CORRECTED", model_config_pb2.TYPE_STRING, [1])]
    assert [(group.kind, group.count) for group in config.instance_group] == [
        (model_config_pb2.ModelInstanceGroup.KIND_CPU, 2)
    ]


def test_every_batch_size_the_scheduler_aims_at_is_warmed_up() -> None:
    config = parse(python_model("spellcheck", SERVING, SETTINGS))
    assert [sample.batch_size for sample in config.model_warmup] == [1, 4, 8, 16]
    assert {sample.inputs["TEXT"].input_data_file for sample in config.model_warmup} == {"text"}


@given(servings(), settings)
def test_every_figure_survives_tritons_own_parser(serving: Serving, expected: Settings) -> None:
    config = parse(python_model("a_model", serving, expected))
    batching = config.dynamic_batching
    assert config.max_batch_size == serving.max_batch_size
    assert tuple(batching.preferred_batch_size) == serving.preferred_batch_sizes
    assert batching.max_queue_delay_microseconds == pytest.approx(serving.max_queue_delay_ms * 1000, abs=0.5)
    assert config.instance_group[0].count == serving.model_instances
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    assert Settings.from_parameters(parameters) == expected


def test_without_dynamic_batching_every_request_is_run_alone() -> None:
    config = parse(python_model("a_model", Serving(dynamic_batching=False, model_instances=3), SETTINGS))
    assert not config.HasField("dynamic_batching")
    assert config.instance_group[0].count == 3


def test_instance_groups_are_tritons_own() -> None:
    groups = (InstanceGroup(count=2, kind="KIND_GPU", gpus=(0, 3)), InstanceGroup(kind="KIND_CPU"), InstanceGroup())
    config = parse(python_model("a_model", Serving(instance_groups=groups), SETTINGS))
    kinds = model_config_pb2.ModelInstanceGroup
    assert [(group.kind, group.count, list(group.gpus)) for group in config.instance_group] == [
        (kinds.KIND_GPU, 2, [0, 3]),
        (kinds.KIND_CPU, 1, []),
        (kinds.KIND_CPU, 1, []),
    ]


def test_a_step_on_the_cpu_has_as_many_copies_as_the_model_beside_it() -> None:
    groups = (InstanceGroup(count=2, kind="KIND_GPU", gpus=(0, 3)), InstanceGroup(kind="KIND_CPU"))
    assert Serving(instance_groups=groups).on_cpu == Serving(model_instances=5)
    assert Serving(model_instances=3).on_cpu == Serving(model_instances=3)


def test_a_hundred_microseconds_are_a_hundred() -> None:
    config = parse(python_model("a_model", Serving(max_queue_delay_ms=0.1), SETTINGS))
    assert config.dynamic_batching.max_queue_delay_microseconds == 100


def test_an_ensemble_has_steps_and_no_scheduler_of_its_own() -> None:
    steps = (
        EnsembleStep(model="first", inputs={"TEXT": "TEXT"}, outputs={"MIDDLE": "between"}),
        EnsembleStep(model="second", inputs={"MIDDLE": "between"}, outputs={"CORRECTED": "CORRECTED"}),
    )
    ensemble = ModelConfig(
        name="both", max_batch_size=8, inputs=(TEXT,), outputs=(CORRECTED,), steps=steps, response_cache=True
    )
    config = parse(render(ensemble))
    assert (config.platform, config.backend, len(config.instance_group)) == ("ensemble", "", 0)
    assert [(s.model_name, s.model_version, dict(s.input_map)) for s in config.ensemble_scheduling.step] == [
        ("first", -1, {"TEXT": "TEXT"}),
        ("second", -1, {"MIDDLE": "between"}),
    ]
    assert config.response_cache.enable


def test_a_plan_for_each_gpu_and_a_zero_batch_size_are_written_out() -> None:
    text = render(
        ModelConfig(
            name="bert",
            backend="tensorrt",
            max_batch_size=0,
            inputs=(Tensor(name="valid_length", data_type="TYPE_INT64", dims=(1,), scalar=True),),
            outputs=(Tensor(name="logits", data_type="TYPE_FP32", dims=(-1,)),),
            kind="KIND_GPU",
            serving=Serving(),
            default_model_filename="model.7.5.plan",
            cc_model_filenames={"7.5": "model.7.5.plan", "8.6": "model.8.6.plan"},
        )
    )
    config = parse(text)
    assert "\nmax_batch_size: 0\n" in text
    assert dict(config.cc_model_filenames) == {"7.5": "model.7.5.plan", "8.6": "model.8.6.plan"}
    assert config.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_GPU
    assert config.input[0].HasField("reshape")
    assert list(config.input[0].reshape.shape) == []
