"""Who may load and unload the models of a Triton: whoever was told the key, or nobody."""

from pathlib import Path

from local_aws.process.triton import CONTROL_HEADER, private_flags


def test_models_are_loaded_by_whoever_was_told_the_key() -> None:
    (restricted,) = [flag for flag in private_flags(Path("/s/http"), "told") if "restricted" in flag]
    assert restricted == "--http-restricted-api=model-repository,shared-memory,logging,trace:local-aws-key=told"
    assert CONTROL_HEADER == "local-aws-key"


def test_without_a_key_nobody_is_told_one() -> None:
    (one,), (other,) = ([flag for flag in private_flags(Path("/s/http")) if "restricted" in flag] for _ in range(2))
    assert one != other
