"""A checkpoint whose files were damaged is read as it stands, or refused in one sentence that names the file.

`read` is what every build, plan and verification begins with.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import examples
from tests.fuzz.damaged_checkpoints import (
    BERT_MODEL,
    PARTS,
    T5_MODEL,
    Damaged,
    damage,
    read_checkpoint,
    refused_or,
    write_checkpoints,
)
from workloads import Model


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Damaged:
    whole = tmp_path_factory.mktemp("whole")
    write_checkpoints(whole)
    return Damaged(whole, tmp_path_factory.mktemp("damaged") / "copy")


@pytest.mark.parametrize(("folder", "model"), PARTS, ids=[folder for folder, _ in PARTS])
def test_a_damaged_checkpoint_is_read_or_refused_in_a_sentence(folder: str, model: Model, damaged: Damaged) -> None:
    @examples(60)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        root = damaged.put(*data.draw(damage(damaged.whole, folder)))
        refused_or(lambda checkpoint: None, root, model)

    run()


def test_whole_ones_are_read(damaged: Damaged) -> None:
    assert [read_checkpoint(damaged.whole, model).weight_count for model in (T5_MODEL, BERT_MODEL)] == [1864, 1362]
