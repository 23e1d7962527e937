"""A machine with a GPU, in programs: an nvidia-smi and a trtexec that print what the real ones print.

Like the real one, this trtexec takes --name=value or --name, knows its own flags only, and writes the plan it is asked
for: one that `tests.containers.fake_tensorrt` loads, which is the graph and what it was built for.
"""

import stat
import sys
from pathlib import Path

T4, A10G, L4 = "Tesla T4, 7.5, 535.104.05", "NVIDIA A10G, 8.6, 550.54.15", "NVIDIA L4, 8.9, 550.54.15"
NVIDIA_SMI = """
FIELDS = ["name", "compute_cap", "driver_version"]
query, layout = sys.argv[1:]
assert (query.partition("=")[0], layout) == ("--query-gpu", "--format=csv,noheader"), sys.argv
queried = [FIELDS.index(field) for field in query.partition("=")[2].split(",")]
for line in {said!r}.splitlines():
    values = line.split(", ")
    print(", ".join(values[index] for index in queried) if len(values) == len(FIELDS) else line)
sys.exit({status})
"""
TRTEXEC = """
import json
banner = "TensorRT.trtexec [TensorRT {version}] [b26] # " + " ".join(sys.argv)
print("&&&& RUNNING " + banner)
if sys.argv[1:] == ["--help"]:
    print("=== Model Options ===")
    sys.exit(0)
arguments = [argument.partition("=")[::2] for argument in sys.argv[1:]]
options = dict(arguments)
known = {{"--onnx", "--saveEngine", "--minShapes", "--optShapes", "--maxShapes", "--noTF32", "--timingCacheFile",
         "--builderOptimizationLevel", "--skipInference", "--profile", *{extra!r}}}
if unknown := sorted(set(options) - known):
    print("[11/21/2026-04:00:00] [E] Unknown option: " + unknown[0])
    print("&&&& FAILED " + banner)
    sys.exit(1)
with open(options["--onnx"], "rb") as file:
    graph = file.read()
if graph == b"broken":
    print("[11/21/2026-04:00:00] [I] Start parsing network model.")
    print("[11/21/2026-04:00:01] [E] Failed to parse onnx file")
    print("[11/21/2026-04:00:01] [E] Engine set up failed")
    print("&&&& FAILED " + banner)
    sys.exit(1)
profiles = [] if "--profile" in options else [{{}}]
for flag, said in arguments:
    if flag == "--profile":
        assert int(said) == len(profiles)
        profiles.append({{}})
    if flag in ("--minShapes", "--optShapes", "--maxShapes"):
        for entry in said.split(","):
            name, _, sizes = entry.partition(":")
            profiles[-1].setdefault(name, []).append([int(size) for size in sizes.split("x")])
with open(options["--timingCacheFile"], "a") as cache:
    cache.write("timed ")
with open(options["--saveEngine"], "wb") as engine:
    head = {{"tensorrt": {plan!r}, "capability": {capability!r}, "profiles": profiles}}
    engine.write(b"ftrt" + bytes(20) + bytes(map(int, {plan!r}.split("."))))
    engine.write(json.dumps(head).encode() + b"\\n" + graph)
print("&&&& PASSED " + banner)
"""


def install(folder: Path, name: str, text: str) -> None:
    program = folder / name
    program.write_text(f"#!{sys.executable}\nimport sys\n{text}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def install_all(folder: Path, *, gpu: str = T4, version: str = "v100400") -> None:
    """`gpu` as nvidia-smi prints it, `version` as trtexec does."""
    install(folder, "nvidia-smi", NVIDIA_SMI.format(said=gpu, status=0))
    extra = ["--stronglyTyped"] if version.startswith("v10") else []
    number, capability = int(version[1:]), gpu.splitlines()[0].split(", ")[1]
    plan = f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    install(folder, "trtexec", TRTEXEC.format(version=version, extra=extra, plan=f"{plan}.26", capability=capability))
