"""The high findings are replayed as they were found, and none gets in."""

import pytest

from scripts.security.replay_high import main

pytestmark = [pytest.mark.integration, pytest.mark.slow]


def test_no_attack_gets_in(capsys: pytest.CaptureFixture[str]) -> None:
    code = main([])
    told = capsys.readouterr().out
    assert code == 0, told
    assert "GOT IN" not in told
