"""A damaged checkpoint that `read` takes is run as it stands, or refused in a sentence. Slow: it needs torch."""

import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_build.checkpoint import Checkpoint
from model_build.text2text.repository import settings
from tests.fuzz import examples
from tests.fuzz.damaged_checkpoints import BERT_MODEL, PARTS, T5_MODEL, Damaged, damage, refused_or, write_checkpoints
from workloads import Model, OnnxRuntimeTarget

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session", autouse=True)
def _libraries() -> None:
    """Imports large modules before the bound on a file's memory begins to count."""
    for name in ("model_build.text2text.verify", "model_build.text2text.export", "model_build.encoder.reference"):
        importlib.import_module(name)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    whole = tmp_path_factory.mktemp("whole")
    write_checkpoints(whole)
    return Damaged(whole, tmp_path_factory.mktemp("damaged") / "copy")


@pytest.mark.parametrize(("folder", "model"), PARTS, ids=[folder for folder, _ in PARTS])
def test_a_damaged_checkpoint_runs_or_is_refused_in_a_sentence(folder: str, model: Model, damaged: Damaged) -> None:
    @examples(40)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        root = damaged.put(*data.draw(damage(damaged.whole, folder)))
        refused_or(_run_t5 if model is T5_MODEL else _run_bert, root, model)

    run()


def _run_t5(checkpoint: Checkpoint) -> None:
    import torch
    from safetensors.torch import load_file

    from model_build.text2text import export
    from model_build.text2text.verify import Original

    network = export.load(checkpoint.folder)
    loaded, (file,) = network.state_dict(), checkpoint.weights
    for name, stored in load_file(file).items():
        assert torch.equal(loaded[name].nan_to_num(), stored.float().nan_to_num()), name
    decoding = settings(T5_MODEL, OnnxRuntimeTarget(runtime="onnxruntime"), checkpoint)
    Original.load(checkpoint.folder, network).generate(["ab", "c"], decoding)


def _run_bert(checkpoint: Checkpoint) -> None:
    import torch

    from model_build.encoder import bert
    from model_build.encoder.reference import Reference

    network = bert.load(checkpoint, BERT_MODEL)
    ((answer,),) = Reference(checkpoint, BERT_MODEL).outputs([{"text": "ab"}])
    tokens = torch.tensor([[2, 4, 5, 3]])
    given = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "token_type_ids": torch.zeros_like(tokens)}
    with torch.inference_mode():
        (logits,) = network(*(given[name] for name in BERT_MODEL.inputs))
    assert answer["logits"].shape == logits[0].shape
