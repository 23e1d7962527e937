"""Each worker has its own NeuronCores."""

from collections.abc import Callable

import pytest

from containers.container_errors import ContainerError
from containers.neuron.placement import available, groups, shares, variables
from tests.builders import failure_of


@pytest.mark.parametrize(
    ("environment", "cores"),
    [
        ({}, [0, 1, 2, 3, 4, 5, 6, 7]),
        ({"NEURON_RT_NUM_CORES": "2"}, [0, 1]),
        ({"NEURON_RT_VISIBLE_CORES": "5"}, [5]),
        ({"NEURON_RT_VISIBLE_CORES": "1-3,6", "NEURON_RT_NUM_CORES": "9"}, [1, 2, 3, 6]),
    ],
)
def test_the_environment_overrides_the_devices(environment: dict[str, str], cores: list[int]) -> None:
    assert available(environment, chips=2, cores_per_chip=4) == cores


NO_DEVICE = (
    "The model is compiled for Neuron, but there is no /dev/neuron* device. Run on an inf1 or inf2 instance, pass the "
    "devices to the container (--device=/dev/neuron0), or set NEURON_RT_NUM_CORES."
)
TOO_FEW = (
    "The model is a pipeline over 16 NeuronCores, but there are 4. Use a larger instance or compile with fewer "
    "pipeline_cores."
)
RANGES = "NEURON_RT_VISIBLE_CORES: got '0:3'. Allowed: core numbers and ranges, for example 0-3 or 0,2."


@pytest.mark.parametrize(
    ("call", "exit_code", "message"),
    [
        (
            lambda: available({"NEURON_RT_NUM_CORES": "all"}, 1, 4),
            2,
            "NEURON_RT_NUM_CORES: got 'all'. Allowed: a number.",
        ),
        (lambda: available({"NEURON_RT_VISIBLE_CORES": "0:3"}, 1, 4), 2, RANGES),
        (lambda: available({}, 0, 4), 3, NO_DEVICE),
        (lambda: groups(range(4), 16), 3, TOO_FEW),
    ],
)
def test_invalid_or_missing_cores_are_an_error(call: Callable[[], object], exit_code: int, message: str) -> None:
    assert failure_of(ContainerError, call) == (message, exit_code)


def test_pipelines_share_no_core_and_incomplete_ones_stay_idle() -> None:
    assert groups([0, 1, 2, 4, 5, 6, 7], 3) == [[0, 1, 2], [4, 5, 6]]


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
def test_a_data_parallel_worker_has_the_chips_of_the_largest_request(
    count: int, at_least: int, processors: int, sizes: list[int]
) -> None:
    given_out = shares(range(count), 4, at_least, processors)
    assert [len(share) for share in given_out] == sizes
    assert [core for share in given_out for core in share] == list(range(count))


@pytest.mark.parametrize(
    ("group", "visible", "count"), [([3], "3", "1"), ([4, 5, 6, 7], "4-7", "4"), ([1, 3], "1,3", "2")]
)
def test_a_worker_sees_only_its_own_cores(group: list[int], visible: str, count: str) -> None:
    assert variables(group, "one-per-core") == {
        "NEURON_RT_VISIBLE_CORES": visible,
        "NEURON_RT_NUM_CORES": count,
        "NEURON_PLACEMENT": "one-per-core",
    }
    assert variables([], "one-per-core") == {}
