"""A headless Chromium that a test drives by the DevTools protocol over a pipe: widths and dark mode.

A page is opened from its file, at the width and in the mode of a reader, and `complaints` are whatever the console had
to say: exceptions, refused requests, warnings.
"""

import json
import os
import select
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HANGING_S = 240.0
"""A bound on hanging, on a machine however busy."""
PHONE, DESKTOP = (360, 740), (1280, 900)


class Browser:
    """One tab."""

    def __init__(self, process: "subprocess.Popen[bytes]", reads: int, writes: int) -> None:
        self._process, self._reads, self._writes = process, reads, writes
        self._number, self._buffer = 0, b""
        self._session: str | None = None
        self._events: list[dict[str, Any]] = []
        self.complaints: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._ask(f"{domain}.enable")

    def open(self, url: str, size: tuple[int, int] = DESKTOP, *, dark: bool = False) -> None:
        """Opens a page, and waits until it is loaded."""
        width, height = size
        phone = size == PHONE
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=phone)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._events.clear()
        self._ask("Page.navigate", url=url)
        deadline = time.monotonic() + HANGING_S
        while not any(each["method"] == "Page.loadEventFired" for each in self._events):
            self._events.append(self._next(deadline))
        self._events.clear()

    def ask(self, script: str) -> Any:
        """Returns the value of an expression of JavaScript; a promise is awaited."""
        found = self._ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def _ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        call: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            call["sessionId"] = self._session
        os.write(self._writes, json.dumps(call).encode() + b"\0")
        deadline = time.monotonic() + HANGING_S
        while True:
            message = self._next(deadline)
            if message.get("id") == self._number:
                assert "error" not in message, message["error"]
                answer: dict[str, Any] = message["result"]
                return answer
            self._events.append(message)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._reads], [], [], max(deadline - time.monotonic(), 0))
            assert ready, "Chromium hangs"
            chunk = os.read(self._reads, 1 << 20)
            assert chunk, f"Chromium has ended with {self._process.poll()}"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        match message.get("method"):
            case "Runtime.consoleAPICalled":
                self.complaints.append(str([each.get("value") for each in message["params"]["args"]]))
            case "Runtime.exceptionThrown":
                self.complaints.append(str(message["params"]["exceptionDetails"]))
            case "Log.entryAdded":
                self.complaints.append(message["params"]["entry"]["text"])
        return message


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """Starts a Chromium that reads from the pipe with number 3 and writes to the one with number 4."""
    theirs_reads, ours_writes = os.pipe()
    ours_reads, theirs_writes = os.pipe()
    options = "--headless=new --no-sandbox --disable-gpu --no-first-run --remote-debugging-pipe"
    command = f'exec "$0" {options} --user-data-dir="$1" 3<&{theirs_reads} 4>&{theirs_writes}'
    process = subprocess.Popen(
        ["bash", "-c", command, str(CHROMIUM), str(profile)],
        pass_fds=(theirs_reads, theirs_writes),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_reads)
    os.close(theirs_writes)
    try:
        yield Browser(process, ours_reads, ours_writes)
    finally:
        process.terminate()
        process.wait(HANGING_S)
        os.close(ours_reads)
        os.close(ours_writes)
