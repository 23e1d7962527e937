"""An endpoint's log in CloudWatch Logs, as SageMaker keeps it: a group for the endpoint, a stream for each server.

A stream begins with the account's own steps before the server's start, in the format of Triton's lines, and has the
server's lines until it answered. Later lines are only in the server's log file.
"""

import threading
import time
from datetime import UTC, datetime

from moto.logs.models import LogsBackend

from local_aws.process.model_server import ModelServer


class EndpointLog:
    def __init__(self, logs: LogsBackend, endpoint: str) -> None:
        self._logs = logs
        self._group = f"/aws/sagemaker/Endpoints/{endpoint}"
        self._lock = threading.Lock()

    def keep(self, variant: str, server: ModelServer) -> None:
        """Writes the stream of a server that answers now."""
        stream = f"{variant}/i-{server.pid:017x}"
        events = [_event(moment, _line(moment, words)) for moment, words in server.preparations]
        now = max([time.time(), *(moment for moment, _ in server.preparations)])
        events += [_event(now, line) for line in server.log_file.read_text("utf-8", "replace").splitlines() if line]
        with self._lock:
            if self._group not in self._logs.groups:
                self._logs.create_log_group(self._group, {})
            if stream not in self._logs.groups[self._group].streams:
                self._logs.create_log_stream(self._group, stream)
            self._logs.put_log_events(self._group, stream, events)


def _event(moment: float, message: str) -> dict[str, object]:
    return {"timestamp": round(moment * 1000), "message": message}


def _line(moment: float, words: str) -> str:
    return f'I{datetime.fromtimestamp(moment, UTC):%m%d %H:%M:%S.%f} 0 local_aws] "{words}"'
