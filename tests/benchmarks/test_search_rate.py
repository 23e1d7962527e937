"""16,000 requests a second by several generators: the table, and one small run of everything."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import search_rate
from inference_recommender.load_generator.process import Outcome


def outcome(**summary: object) -> Outcome:
    return Outcome(folder=Path(), exit_code=0, reason="", summary=summary)


def test_the_table_has_what_generators_and_server_took_of_all_requests_sent(capsys: pytest.CaptureFixture[str]) -> None:
    sent = [
        outcome(invocations=20_000, duration_s=10.0, generator={"cpu_share": share, "lag_ms": 0.1})
        for share in (0.1, 0.3)
    ]
    latency = {"p50": 2.0, "p99": 12.0}
    merged = outcome(invocations=36_009, errors=9, duration_s=9.0, client_latency_from_intended_ms=latency)
    row = {"asked": 4000.0, **search_rate.summary(merged, sent, server_s=8.0)}
    assert search_rate.report([row], 16_000, 2, 10.0) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "asked/s  reached/s  P50 ms  P99 ms  generators: CPU µs  cores  server: CPU µs  cores",
        "  4,000      4,000    2.00   12.00               100.0   0.40           200.0   0.80",
        "16,000 requests/s need 1.6 cores for the 2 generators and 3.2 for the server.",
        "goal                                          figure  limit    verdict",
        "share of 16,000 requests/s that is reached      0.25  ≥ 0.98   missed",
        "P99 in ms                                         12  ≤ 10     missed",
    ]


@pytest.mark.slow
@pytest.mark.integration
def test_several_generators_drive_query_intents_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search_rate, "PARTS", (1,))
    monkeypatch.setattr(search_rate, "START_S", 10.0)
    monkeypatch.setattr(sys, "argv", ["search_rate.py", "--rate", "300", "--generators", "2", "--seconds", "5"])
    search_rate.main()
    [row] = json.loads(capsys.readouterr().out.splitlines()[-1])["rates"]
    assert row["asked"] == 300
    assert 0 < row["reached"] < 600
    assert row["generators_cpu_us"] > 0
    assert row["server_cpu_us"] > 0
