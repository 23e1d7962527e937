"""Every worker has NeuronCores of its own, and none is given twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.errors import ContainerError, Unavailable
from containers.neuron.cores import available, groups, shares, variables


@pytest.mark.parametrize(
    ("environment", "cores"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"NEURON_RT_NUM_CORES": "2"}, [0, 1]),
        ({"NEURON_RT_VISIBLE_CORES": "5"}, [5]),
        ({"NEURON_RT_VISIBLE_CORES": "1-3,6", "NEURON_RT_NUM_CORES": "9"}, [1, 2, 3, 6]),
    ],
)
def test_the_environment_says_which_cores_there_are_or_else_the_devices(
    environment: dict[str, str], cores: list[int]
) -> None:
    assert available(environment, chips=2, cores_per_chip=4) == cores


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"NEURON_RT_NUM_CORES": "all"}, "NEURON_RT_NUM_CORES: got 'all'. Allowed: a number."),
        (
            {"NEURON_RT_VISIBLE_CORES": "0:3"},
            "NEURON_RT_VISIBLE_CORES: got '0:3'. Allowed: core numbers and ranges of them, as 0-3 or 0,2.",
        ),
    ],
)
def test_a_setting_that_is_no_number_is_refused(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ContainerError) as caught:
        available(environment, chips=1, cores_per_chip=4)
    assert (str(caught.value), caught.value.exit_code) == (message, 2)


def test_a_machine_without_devices_is_told_so() -> None:
    with pytest.raises(Unavailable) as caught:
        available({}, chips=0, cores_per_chip=4)
    assert str(caught.value) == (
        "The model is compiled for Neuron and there is no /dev/neuron* device. Run on an inf1 or inf2 instance, give "
        "the container its devices (--device=/dev/neuron0), or set NEURON_RT_NUM_CORES."
    )
    assert caught.value.exit_code == 3


def test_a_pipeline_longer_than_the_machine_is_refused() -> None:
    with pytest.raises(Unavailable) as caught:
        groups(range(4), 16)
    assert str(caught.value) == (
        "The model is a pipeline over 16 NeuronCores and there are 4. Use a larger instance or compile with fewer "
        "pipeline_cores."
    )


@given(st.sets(st.integers(0, 63), min_size=1), st.integers(1, 16))
def test_pipelines_share_no_core_and_leave_less_than_one_of_them_idle(cores: set[int], pipeline_cores: int) -> None:
    if len(cores) < pipeline_cores:
        return
    given_out = groups(sorted(cores), pipeline_cores)
    flat = [core for group in given_out for core in group]
    assert len(flat) == len(set(flat)) > len(cores) - pipeline_cores
    assert {len(group) for group in given_out} == {pipeline_cores}


@pytest.mark.parametrize(
    ("count", "at_least", "processors", "sizes"),
    [
        (4, 16, 4, [4]),  # inf1.xlarge, batches of 1: all there is
        (16, 16, 24, [16]),  # inf1.6xlarge, where a request of 16 rows occupies every core
        (16, 4, 24, [4, 4, 4, 4]),  # batches of 4: each chip takes the largest request
        (16, 1, 24, [4, 4, 4, 4]),
        (16, 5, 24, [8, 8]),
        (16, 12, 24, [16]),  # the rest of a machine is the last worker's
        (64, 16, 96, [16, 16, 16, 16]),  # inf1.24xlarge
        (16, 4, 2, [8, 8]),  # a container with fewer processors
        (16, 4, 1, [16]),
    ],
)
def test_data_parallel_workers_are_many_and_none_is_smaller_than_the_largest_request(
    count: int, at_least: int, processors: int, sizes: list[int]
) -> None:
    given_out = shares(range(count), 4, at_least, processors)
    assert [len(share) for share in given_out] == sizes
    assert [core for share in given_out for core in share] == list(range(count))


@pytest.mark.parametrize(
    ("group", "visible", "count"), [([3], "3", "1"), ([4, 5, 6, 7], "4-7", "4"), ([1, 3], "1,3", "2")]
)
def test_a_worker_sees_its_own_cores_and_no_others(group: list[int], visible: str, count: str) -> None:
    assert variables(group, "one-per-core") == {
        "NEURON_RT_VISIBLE_CORES": visible,
        "NEURON_RT_NUM_CORES": count,
        "NEURON_PLACEMENT": "one-per-core",
    }


def test_a_worker_on_cpu_is_told_nothing_of_cores() -> None:
    assert variables([], "one-per-core") == {}
