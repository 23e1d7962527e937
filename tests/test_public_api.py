"""The public names and their page, and what a help text or the client imports."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.api_docs import MODULES, PAGE, described
from workloads import ROOT

CLIENT = """CannotEncode HttpServer InferenceClient InferenceFailed LatencyMetric NotAnAnswer Refused Retries
SageMakerEndpoint TimedOut Unreachable"""
PUBLIC = {
    "inference_recommender": ["prove", "run", "size"],
    "inference_recommender.client": CLIENT.split(),
    "model_build": ["build"],
}
LIBRARIES = {"boto3", "botocore", "jinja2", "matplotlib", "moto", "numpy", "onnx", "scipy", "tokenizers", "torch"}


def test_these_names_are_public() -> None:
    assert {name: module.__all__ for name, module in MODULES.items()} == PUBLIC


def test_the_page_has_the_docstrings_of_all_public_names() -> None:
    page = PAGE.read_text("utf-8")
    assert page == described(page), "run `python -m scripts.api_docs`"
    assert set(MODULES) == {name for name in MODULES if f"<!-- {name} -->" in page}


@pytest.mark.parametrize("program", ["inference_recommender", "local_aws", "model_build", "stacks"])
def test_help_imports_no_library_of_a_command(program: str) -> None:
    code = f"""
import runpy, sys
sys.argv = [{program!r}, "--help"]
try:
    runpy.run_module({program!r}, run_name="__main__")
except SystemExit as ended:
    sys.exit(ended.code or str({LIBRARIES} & set(sys.modules) or ""))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""


@pytest.mark.parametrize("distribution", ["other", None])
def test_a_package_of_another_distribution_is_named_at_the_import(tmp_path: Path, distribution: str | None) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "__init__.py").touch()
    if distribution:
        installed = tmp_path / f"{distribution}-1.0.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (installed / "RECORD").write_text("stacks/__init__.py,,0\n")
    command = [sys.executable, "-P", "-c", "from workloads import load_workload"]
    path = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(command, env=path, cwd=tmp_path, capture_output=True, text=True, check=True)
    sentence = f"The package 'stacks' in {tmp_path / 'stacks'} belongs to the distribution other."
    assert (sentence in done.stderr, bool(done.stderr)) == (bool(distribution), bool(distribution))
