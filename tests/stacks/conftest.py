"""Templates that many tests look at: jsii is slow, so each is synthesised once."""

from pathlib import Path

import pytest

from tests.stacks.miniature import Repository, Synthesis, candidate, make_repository


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_repository(tmp_path)


@pytest.fixture(scope="session")
def unmeasured(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Without a recommendation."""
    return make_repository(tmp_path_factory.mktemp("unmeasured")).synthesise()


@pytest.fixture(scope="session")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """With a recommendation measured on SageMaker: what production looks like."""
    repository = make_repository(tmp_path_factory.mktemp("measured"))
    repository.recommend(candidate())
    return repository.synthesise()
