"""The scaled residual stream is the same network: in fp32 every output is the checkpoint's to the last bit."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from model_build.text2text import export, t5
from tests.model_build.miniatures.tiny_t5 import make_checkpoint
from workloads import ROOT

LENGTH, STEPS = 9, 4


@pytest.fixture(scope="module", params=["relu", "gated-gelu", "spellcheck"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tiny T5s with random weights, and the trained one of this repository."""
    if request.param == "spellcheck":
        return ROOT / "workloads" / "spellcheck" / "checkpoint"
    folder = tmp_path_factory.mktemp(request.param)
    make_checkpoint(folder, gated=request.param == "gated-gelu")
    return folder


def outputs(folder: Path) -> list[Tensor]:
    """Returns what both graphs give for a padded batch: the encoder's outputs, logits and cache of each step."""
    model = export.load(folder)
    torch.manual_seed(3)
    source = torch.randint(3, model.config.vocab_size, (3, LENGTH))
    mask = torch.ones_like(source)
    mask[1:, -3:] = 0
    with torch.inference_mode():
        cross, cross_bias = t5.T5Encoder(model, LENGTH)(source, mask)
        decoder, made = t5.T5Decoder(model, STEPS), [cross, cross_bias]
        tokens, past = torch.zeros(3, 1, dtype=torch.long), cross[:, :, :0]
        for _ in range(STEPS):
            tokens, logits, past = decoder(tokens, cross_bias, cross, past)
            made += [logits, past]
    return made


def test_every_output_is_the_checkpoints_to_the_last_bit(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert t5.SCALE == 2**-5
    scaled = outputs(checkpoint)
    monkeypatch.setattr(t5, "SCALE", 1.0)
    assert all(torch.equal(mine, original) for mine, original in zip(scaled, outputs(checkpoint), strict=True))


def test_a_scale_that_is_no_power_of_two_would_show(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = outputs(checkpoint)
    monkeypatch.setattr(t5, "SCALE", 0.03)
    assert not all(torch.equal(mine, value) for mine, value in zip(outputs(checkpoint), original, strict=True))
