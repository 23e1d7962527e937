"""Runs a Triton and the proxy before it: `python -m local_aws.process.serve_model PLAN`, behind a guard.

PLAN is a `ServePlan` in JSON, in a folder that only we can read: Triton's command and environment, its socket, the
model, and the key of the routes. Standard output gets one line: {"port": the proxy's, "pid": Triton's}. Triton writes
to standard error. The program ends when Triton does, with its status (128 + N for signal N); SIGTERM lets requests
under way end.

Nothing that Triton makes can be read by other users: the umask says so for files, and for the shared memory of its
Python backend, to which Boost gives mode 0644 whatever the umask, a seccomp filter does (`_PRIVATE`).
"""

import asyncio
import ctypes
import json
import os
import resource
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
SYS_SECCOMP = 317
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4
"""Without it, some kernels slow a filtered process down for fear of Spectre."""
OPEN_FILES = 4096
"""The proxy and Triton need one for each connection."""
HANG_UP_S = 0.02
"""Time in which Triton notices that idle connections are closed."""

_LOAD, _EQUALS, _HAS_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_X86_64, _FCHMOD, _OTHERS = 0xC000003E, 91, 0o077
_SUCCEED_WITHOUT_DOING, _ALLOW = 0x00050000, 0x7FFF0000
# A program for the kernel's filter, over struct seccomp_data {int nr; u32 arch; u64 ip; u64 args[6]}: where
# fchmod(file, mode) would give others a right, it does nothing and succeeds, so a file keeps what the umask left it.
_PRIVATE = b"".join(
    struct.pack("=HBBI", *instruction)
    for instruction in (
        (_LOAD, 0, 0, 4),
        (_EQUALS, 0, 5, _X86_64),
        (_LOAD, 0, 0, 0),
        (_EQUALS, 0, 3, _FCHMOD),
        (_LOAD, 0, 0, 24),
        (_HAS_BIT, 0, 1, _OTHERS),
        (_RETURN, 0, 0, _SUCCEED_WITHOUT_DOING),
        (_RETURN, 0, 0, _ALLOW),
    )
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ServePlan:
    command: list[str]
    environment: dict[str, str]
    socket: str
    model: str
    key: str

    @classmethod
    def read(cls, file: Path) -> Self:
        return cls(**json.loads(file.read_text("utf-8")))

    def write(self, file: Path) -> None:
        """Writes it for our eyes alone."""
        file.touch(mode=0o600)
        file.write_text(json.dumps(asdict(self)), "utf-8")


def main(plan_file: str) -> int:
    plan = ServePlan.read(Path(plan_file))
    os.umask(0o077)
    _allow_open_files()
    triton = subprocess.Popen(
        plan.command,
        env=plan.environment,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        process_group=0,  # SIGTERM is for us first
        preexec_fn=_confine(),
    )
    import uvloop  # Triton starts meanwhile

    status = uvloop.run(_serve(plan, triton))
    return 128 - status if status < 0 else status


async def _serve(plan: ServePlan, triton: "subprocess.Popen[bytes]") -> int:
    """Serves until Triton has ended, and returns its status."""
    from local_aws.process.container_contract import ContainerContract
    from local_aws.process.proxy import SWEEP_S, Proxy

    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(os.pidfd_open(triton.pid), ended.set)
    proxy = Proxy(
        ContainerContract(plan.model, plan.key),
        lambda protocol: loop.create_unix_connection(protocol, plan.socket),
    )
    server = await loop.create_server(proxy.accept, "127.0.0.1", 0, backlog=1024)

    def drain() -> None:
        server.close()
        proxy.drain()
        # Triton looks once a second whether its connections are closed, and first when it gets the signal.
        loop.call_later(HANG_UP_S, triton.terminate)

    loop.add_signal_handler(signal.SIGTERM, drain)
    _tell({"port": server.sockets[0].getsockname()[1], "pid": triton.pid})
    while not ended.is_set():
        proxy.sweep()
        try:
            await asyncio.wait_for(ended.wait(), SWEEP_S)
        except TimeoutError:
            continue
    return triton.wait()


def _tell(told: dict[str, int]) -> None:
    """Writes the one line of standard output and closes it."""
    print(json.dumps(told), flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _confine() -> Callable[[], None]:
    """Returns what the child does before it becomes Triton: it is to end with us, and to keep its files private."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = ctypes.create_string_buffer(_PRIVATE, len(_PRIVATE))
    # struct sock_fprog {unsigned short len; struct sock_filter *filter;}
    filtered = ctypes.create_string_buffer(struct.pack("HP", len(_PRIVATE) // 8, ctypes.addressof(program)))

    def confine() -> None:
        _ = program  # the kernel reads it through its address
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.syscall(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, filtered):
            raise OSError(ctypes.get_errno(), "The kernel takes no seccomp filter")

    return confine


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
