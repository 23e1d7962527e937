"""A real Triton writes answers of the length that is forced, and is surveyed whole, with a real load beside it."""

from pathlib import Path

import pytest

from inference_recommender.capacity.closed_loop import Limit
from inference_recommender.client.kserve import Body, decode
from inference_recommender.lengths import served, tokens
from inference_recommender.lengths.served import Server, built_server
from inference_recommender.lengths.shifts import Bounds
from inference_recommender.lengths.survey import Asked, Survey, measure
from inference_recommender.lengths.tokens import built_tokenizer
from inference_recommender.payloads import payload_archive, request_body
from model_build.build import build
from model_build.plan import plan
from tests.model_build.miniatures.tiny_t5 import make_workload
from workloads import Row


def _written(server: Server, row: Row) -> int:
    """Returns the letters of an answer: each of the miniature's tokens is one."""
    answer = decode(Body(content=server.post(request_body(row))), ("CORRECTED",))["CORRECTED"].flat[0].decode()
    return len(answer.replace(" ", ""))


@pytest.mark.slow
@pytest.mark.integration
def test_answers_have_exactly_the_tokens_that_are_forced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_workload(tmp_path / "workloads")
    build(plan(folder, "cpu", tmp_path))
    for module in (served, tokens):
        monkeypatch.setattr(module, "ROOT", tmp_path)
    rows, run = folder.payloads(), tmp_path / "run"
    with built_server(folder, "cpu", run, lambda text: None) as server:
        assert len({_written(server, row) for row in rows}) > 1, "as built, some answers end early"
        survey = Survey(post=server.post, tokenizer=built_tokenizer(folder), answer="CORRECTED")
        archive = run / "payloads.tar.gz"
        archive.write_bytes(payload_archive(rows))
        asked = Asked(
            payloads=rows,
            others=None,
            requests=5,
            load_invocations_per_minute=600.0,
            archive=archive,
            at_once=4,
            limit=Limit(percentile=99.0, latency_ms=1000.0),
        )
        found = measure(survey, server, asked, Bounds(inputs=24, outputs=12), lambda text: None)
        assert max(each.output_tokens for each in found.forced) == 12
        assert found.load_invocations_per_minute == 600
        assert (run / "load/summary.json").exists()
        assert [[level.users for level in each.levels] for each in found.kinds] == [[1, 2, 4, 8]] * 5
        assert found.kinds[-1].mean_output_tokens == 12
        assert all(0 < each.invocations_per_minute <= each.most for each in found.kinds)
        assert server.force is not None
        server.force(12)
        in_letters = [row for row in rows if _written(server, row) == 12]
        assert len(in_letters) > len(rows) / 2, "the others write special tokens, which no text shows"
        for length in (3, 7):
            server.force(length)
            assert {_written(server, row) for row in in_letters} == {length}
