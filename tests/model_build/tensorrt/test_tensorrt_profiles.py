"""The shapes an engine is built for, from a workload's lengths and batch sizes."""

from model_build.tensorrt.profiles import Profile, encoder_profile, text2text_profiles
from tests.model_build.tensorrt.tensorrt_graphs import BERTS, FIVE_INPUTS, T5
from workloads import Serving

BATCHED = Serving(max_batch_size=16, preferred_batch_sizes=(4, 8))


def ranges(profile: Profile) -> dict[str, tuple[tuple[int, ...], ...]]:
    return {name: (shapes.min, shapes.opt, shapes.max) for name, shapes in profile.items()}


def test_a_berts_inputs_have_the_workloads_order_lengths_and_batches() -> None:
    """valid_length is one number per row. If every request is padded, there is no shorter shape."""
    everything = ((1, 1), (8, 32), (16, 32))
    profile = ranges(encoder_profile(BERTS["scoring"], BATCHED))
    assert tuple(profile) == FIVE_INPUTS
    assert profile == dict.fromkeys(FIVE_INPUTS, everything) | {"valid_length": ((1,), (8,), (16,))}
    padded = BERTS["answering"].model_copy(update={"padding": "max_length"})
    assert ranges(encoder_profile(padded, BATCHED))["input_ids"] == ((1, 32), (8, 32), (16, 32))


def test_a_t5_has_a_profile_for_one_short_row_and_one_for_the_batches() -> None:
    profiles = text2text_profiles(T5, BATCHED, channels=16, d_kv=8)
    one, batches = ((1, 16), (1, 16), (1, 24)), ((2, 16), (8, 24), (16, 24))
    assert [ranges(profile) for profile in profiles["encoder"]] == [
        {"input_ids": sizes, "attention_mask": sizes} for sizes in (one, batches)
    ]
    assert [ranges(profile) for profile in profiles["decoder"]] == [
        {
            "tokens": tuple((rows, 1) for rows, _ in sizes),
            "cross_bias": tuple((rows, 1, 1, source) for rows, source in sizes),
            "cross": tuple((rows, 16, source, 8) for rows, source in sizes),
            "past": tuple((rows, 16, 12, 8) for rows, _ in sizes),
        }
        for sizes in (one, batches)
    ]


def test_a_t5_that_takes_one_row_has_no_profile_for_batches() -> None:
    profiles = text2text_profiles(T5, Serving(max_batch_size=1), channels=16, d_kv=8)
    assert [len(profile) for profile in profiles.values()] == [1, 1]


def test_kernels_are_timed_for_one_row_where_no_batch_is_asked_for() -> None:
    alone = Serving(max_batch_size=16, preferred_batch_sizes=(8,), dynamic_batching=False)
    assert encoder_profile(BERTS["answering"], alone)["input_ids"].opt == (1, 32)
    assert encoder_profile(BERTS["answering"], Serving(max_batch_size=16))["input_ids"].opt == (1, 32)
