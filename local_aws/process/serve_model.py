"""Runs a Triton and the proxy before it, behind a guard: `python -I -S serve_model.py PLAN`.

A container's own server, which answers /ping and /invocations itself, is run in a Triton's place in the same way.
PLAN is what `plan_command` wrote: Triton's command and environment, its socket, the model, and the key of the routes.
Standard output gets one line: {"port": the proxy's, "pid": Triton's}. Triton writes to standard error. The program ends
when Triton does, with its status (128 + N for signal N); SIGTERM lets requests under way end.

Triton is started first, and whatever takes long to import comes afterwards, while it loads its model.

Nothing that Triton makes can be read by other users: the umask says so for files, and for the shared memory of its
Python backend, to which Boost gives mode 0644 whatever the umask, a seccomp filter does (`_PRIVATE`).
"""

import ctypes
import io
import json
import os
import resource
import signal
import struct
import sys

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
SYS_SECCOMP = 317
SECCOMP_SET_MODE_FILTER = 1
SECCOMP_FILTER_FLAG_SPEC_ALLOW = 4
"""Without it, some kernels slow a filtered process down for fear of Spectre."""
OPEN_FILES = 4096
"""The proxy and Triton need one for each connection."""
HANG_UP_S = 0.01
"""Time in which Triton notices that idle connections are closed."""
CANNOT_START = 126

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


def plan_command(
    folder: str,
    *,
    root: str,
    command: list[str],
    environment: dict[str, str],
    socket: str | int,
    model: str | None,
    key: str,
) -> list[str]:
    """Writes a plan into `folder`, for our eyes alone, and returns the command that runs it.

    `root` is where our packages are, and `command` names the server's program by its path. It listens on `socket`: the
    path of one, or a port on loopback. `model` is what Triton is asked for; None where a container answers itself.
    """
    plan = {"command": command, "environment": environment, "socket": socket, "model": model, "key": key}
    file = os.path.join(folder, "plan.json")  # noqa: PTH118  (pathlib takes 5 ms to import)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        json.dump({**plan, "path": [root, *sys.path]}, stream)
    # Without `site`, it starts sooner; what it imports later is found by the plan's path.
    return [sys.executable, "-I", "-S", __file__, file]


def main(plan_file: str) -> int:
    with io.FileIO(plan_file) as file:
        plan = json.loads(file.readall())
    os.umask(0o077)
    _allow_open_files()
    triton = _start(plan["command"], plan["environment"])
    sys.path[:] = plan["path"]
    import uvloop

    status = os.waitstatus_to_exitcode(uvloop.run(_serve(plan["model"], plan["key"], plan["socket"], triton)))
    return 128 - status if status < 0 else status


async def _serve(model: str | None, key: str, socket: str | int, triton: int) -> int:
    """Serves until Triton has ended, and returns what the kernel tells of its end."""
    import asyncio

    from local_aws.process.container_contract import ContainerContract
    from local_aws.process.proxy import SWEEP_S, Proxy

    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(os.pidfd_open(triton), ended.set)
    port, path = (socket, "") if isinstance(socket, int) else (0, socket)
    proxy = Proxy(
        ContainerContract(model, key),
        lambda protocol: (
            loop.create_connection(protocol, "127.0.0.1", port) if port else loop.create_unix_connection(protocol, path)
        ),
    )
    server = await loop.create_server(proxy.accept, "127.0.0.1", 0, backlog=1024)

    def drain() -> None:
        server.close()
        proxy.drain()
        # Triton looks once a second whether its connections are closed, and first when it gets the signal.
        loop.call_later(HANG_UP_S, os.kill, triton, signal.SIGTERM)

    loop.add_signal_handler(signal.SIGTERM, drain)
    _tell({"port": server.sockets[0].getsockname()[1], "pid": triton})
    while not ended.is_set():
        proxy.sweep()
        try:
            await asyncio.wait_for(ended.wait(), SWEEP_S)
        except TimeoutError:
            continue
    return os.waitpid(triton, 0)[1]


def _start(command: list[str], environment: dict[str, str]) -> int:
    """Starts Triton, which is to end with us and keep its files private, and returns its process id.

    It has a process group of its own, because SIGTERM is for us first.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    program = ctypes.create_string_buffer(_PRIVATE, len(_PRIVATE))
    # struct sock_fprog {unsigned short len; struct sock_filter *filter;}
    filtered = ctypes.create_string_buffer(struct.pack("HP", len(_PRIVATE) // 8, ctypes.addressof(program)))
    if pid := os.fork():
        return pid
    try:
        os.setpgid(0, 0)
        os.dup2(2, 1)
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        if libc.syscall(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW, filtered):
            raise OSError(ctypes.get_errno(), "the kernel takes no seccomp filter")
        os.execve(command[0], command, environment)
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error}\n".encode())
    os._exit(CANNOT_START)


def _tell(told: dict[str, int]) -> None:
    """Writes the one line of standard output and closes it."""
    print(json.dumps(told), flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _allow_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
