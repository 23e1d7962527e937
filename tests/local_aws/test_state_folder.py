"""The account's folder is one account's, its owner's, and bounded."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from local_aws.__main__ import main
from local_aws.state_folder import StateFolder, check_room
from tests.builders import known, message_of
from workloads import ROOT, Unavailable

HOLD = """
import sys, time; from pathlib import Path; from local_aws.state_folder import StateFolder
with StateFolder.take(Path(sys.argv[1])): print("locked", flush=True); time.sleep(600)
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_second_account_ends_with_3_before_it_touches_the_first_ones_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir()
    for kept_as_it_is in ("os.umask", "signal.signal", "local_aws.__main__._log_to_stderr"):
        monkeypatch.setattr(kept_as_it_is, lambda *_: None)
    with StateFolder.take(tmp_path):
        assert message_of(Unavailable, main, ["--state", str(tmp_path)]) == (
            f"{tmp_path} is in use by another account, process {os.getpid()}. Stop that one, or choose another folder "
            "with --state DIR."
        )
    assert (tmp_path / "models").exists()


def test_the_lock_of_a_killed_account_does_not_outlive_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, env={"PYTHONPATH": str(ROOT)})
    with known(holder.stdout) as said:
        assert said.readline() == b"locked\n"
    with pytest.raises(Unavailable, match=f"process {holder.pid}"), StateFolder.take(tmp_path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with StateFolder.take(tmp_path):
        pass


def test_a_folder_that_was_open_to_others_becomes_private(tmp_path: Path) -> None:
    open_to_all = tmp_path / "state"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    with StateFolder.take(open_to_all):
        assert mode(open_to_all) == 0o700
        assert mode(open_to_all / "lock") == 0o600


def test_the_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(Unavailable) as refused, StateFolder.take(tmp_path):
        pass
    assert str(refused.value) == (f"{tmp_path} belongs to another user: choose a folder of your own with --state DIR.")
    assert not (tmp_path / "lock").exists()


def test_models_of_a_killed_account_are_removed_and_no_other_folder(tmp_path: Path) -> None:
    models = tmp_path / "models"
    models.mkdir()
    for still_there in (True, False):  # the second account finds the first one's lock
        with StateFolder.take(tmp_path) as folder:
            folder.remove_models()
            assert models.exists() == still_there


def test_the_exports_are_readable_for_their_owner_alone_and_go_with_the_account(tmp_path: Path) -> None:
    (tmp_path / "exports").write_text("of an account that was killed, readable for all")
    with StateFolder.take(tmp_path) as folder:
        folder.write_exports("export A=b")
        assert mode(folder.exports_file) == 0o600
        assert folder.exports_file.read_text() == "export A=b\n"
    assert not folder.exports_file.exists()


def test_nothing_is_started_in_a_folder_that_is_full(tmp_path: Path) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "records").write_bytes(b"x" * 4096)
    check_room(tmp_path, max_state_bytes=4096, min_free_bytes=0)
    assert message_of(Unavailable, check_room, tmp_path, max_state_bytes=4095, min_free_bytes=0) == (
        f"{tmp_path} holds 0.0 GiB, and may hold 0.0 GiB. Delete endpoints, or the folders of old jobs in "
        f"{tmp_path / 'jobs'}."
    )
    with pytest.raises(Unavailable, match="nothing is started with less than"):
        check_room(tmp_path, min_free_bytes=1 << 60)
