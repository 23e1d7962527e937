"""config.pbtxt has the settings of workload.toml, in the form that Triton's own protobuf reads."""

from pathlib import Path
from typing import Any

from google.protobuf import text_format  # type: ignore[import-untyped]
from tritonclient.grpc import model_config_pb2

from containers.text2text.settings import Settings
from model_build.triton.config_pbtxt import EnsembleStep, ModelConfig, Tensor, WarmUp, render, warm_up_sizes
from tests.builders import assert_is_golden
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


def python_model(serving: Serving = SERVING, **keys: Any) -> ModelConfig:
    return ModelConfig(
        name="spellcheck",
        backend="python",
        max_batch_size=serving.max_batch_size,
        inputs=(TEXT,),
        outputs=(CORRECTED,),
        serving=serving,
        parameters=SETTINGS.to_parameters(),
        warm_ups=tuple(WarmUp(batch_size=size, tensors={"TEXT": (TEXT, "text")}) for size in warm_up_sizes(serving)),
        **keys,
    )


def parse(config: ModelConfig) -> model_config_pb2.ModelConfig:
    return text_format.Parse(render(config), model_config_pb2.ModelConfig())


def test_the_text_is_the_golden_file() -> None:
    assert_is_golden(GOLDEN, render(python_model()))


def test_triton_reads_every_setting_of_a_python_backend_model() -> None:
    config = parse(python_model())
    tensors = [(t.name, t.data_type, list(t.dims)) for t in (*config.input, *config.output)]
    assert (config.name, config.backend, config.max_batch_size) == ("spellcheck", "python", 16)
    assert tensors == [("TEXT", model_config_pb2.TYPE_STRING, [1]), ("CORRECTED", model_config_pb2.TYPE_STRING, [1])]
    batching = config.dynamic_batching
    assert (list(batching.preferred_batch_size), batching.max_queue_delay_microseconds) == ([4, 8], 500)
    kind = model_config_pb2.ModelInstanceGroup.KIND_CPU
    assert [(group.kind, group.count) for group in config.instance_group] == [(kind, 2)]
    assert [sample.batch_size for sample in config.model_warmup] == [1, 4, 8, 16]
    assert {sample.inputs["TEXT"].input_data_file for sample in config.model_warmup} == {"text"}
    parameters = {key: value.string_value for key, value in config.parameters.items()}
    assert Settings.from_parameters(parameters) == SETTINGS


def test_without_dynamic_batching_every_request_is_run_by_itself() -> None:
    config = parse(python_model(Serving(dynamic_batching=False, model_instances=3)))
    assert not config.HasField("dynamic_batching")
    assert config.instance_group[0].count == 3


def test_instance_groups_are_tritons_own_and_a_step_on_the_cpu_has_as_many_copies() -> None:
    groups = (InstanceGroup(count=2, kind="KIND_GPU", gpus=(0, 3)), InstanceGroup(kind="KIND_CPU"), InstanceGroup())
    config = parse(python_model(Serving(instance_groups=groups)))
    kinds = model_config_pb2.ModelInstanceGroup
    assert [(group.kind, group.count, list(group.gpus)) for group in config.instance_group] == [
        (kinds.KIND_GPU, 2, [0, 3]),
        (kinds.KIND_CPU, 1, []),
        (kinds.KIND_CPU, 1, []),
    ]
    assert Serving(instance_groups=groups[:2]).on_cpu == Serving(model_instances=5)


def test_an_ensemble_has_steps_and_no_scheduler_of_its_own() -> None:
    steps = (
        EnsembleStep(model="first", inputs={"TEXT": "TEXT"}, outputs={"MIDDLE": "between"}),
        EnsembleStep(model="second", inputs={"MIDDLE": "between"}, outputs={"CORRECTED": "CORRECTED"}),
    )
    config = parse(
        ModelConfig(
            name="both", max_batch_size=8, inputs=(TEXT,), outputs=(CORRECTED,), steps=steps, response_cache=True
        )
    )
    assert (config.platform, config.backend, len(config.instance_group)) == ("ensemble", "", 0)
    assert [(s.model_name, s.model_version, dict(s.input_map)) for s in config.ensemble_scheduling.step] == [
        ("first", -1, {"TEXT": "TEXT"}),
        ("second", -1, {"MIDDLE": "between"}),
    ]
    assert config.response_cache.enable


def test_a_plan_for_each_gpu_and_a_zero_batch_size_are_written_out() -> None:
    model = ModelConfig(
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
    config = parse(model)
    assert "\nmax_batch_size: 0\n" in render(model)
    assert dict(config.cc_model_filenames) == {"7.5": "model.7.5.plan", "8.6": "model.8.6.plan"}
    assert config.instance_group[0].kind == model_config_pb2.ModelInstanceGroup.KIND_GPU
    assert config.input[0].HasField("reshape")
    assert list(config.input[0].reshape.shape) == []
