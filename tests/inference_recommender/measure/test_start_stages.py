"""The stages of a start follow one another, and what no line tells is not made up. The lines are a real Triton's."""

from dataclasses import asdict
from datetime import UTC, datetime

import pytest

from inference_recommender.measure.start_stages import LogLine, Stages, cold_start, stages
from tests.builders import a_system
from tests.inference_recommender.measure.recorded_log import OWN, QUIET, VERBOSE, at, lines

ARCHIVE = "a" * 64


def test_the_stages_of_a_local_start_follow_one_another_and_sum_to_the_whole() -> None:
    found = stages(lines(OWN + QUIET), requested_at=at(40.0), in_service_at=at(43.7), warm_up_s=0.215, answered_s=0.012)
    assert asdict(found) == pytest.approx(
        {
            "provisioning_s": None,
            "fetch_s": 0.025,
            "unpack_s": 0.075,
            "start_s": 0.663204,
            "load_s": 2.658840 - 0.215,
            "warm_up_s": 0.215,
            "first_answer_s": 0.189956,
            "total_s": 3.612,
        },
        abs=1e-5,
    )
    parts = (found.fetch_s, found.unpack_s, found.start_s, found.load_s, found.warm_up_s, found.first_answer_s)
    assert sum(part for part in parts if part is not None) == pytest.approx(found.total_s)


def test_a_start_on_sagemaker_has_provisioning_in_the_place_of_fetching_and_unpacking() -> None:
    found = stages(lines(VERBOSE), requested_at=at(46.0, minute=12), in_service_at=at(70.0), answered_s=0.5)
    # The warm-up is from the first sample to the loaded model, without models that load later.
    assert asdict(found) == pytest.approx(
        {
            "provisioning_s": 240.005892,
            "fetch_s": None,
            "unpack_s": None,
            "start_s": 0.001904,
            "load_s": 2.267932,
            "warm_up_s": 0.127916,
            "first_answer_s": 22.096356,
            "total_s": 24.494108,
        },
        abs=1e-5,
    )


def test_without_verbose_lines_and_counters_the_load_has_the_warm_up() -> None:
    found = stages(lines(QUIET), requested_at=at(0.0))
    assert found.load_s == pytest.approx(2.658840, abs=1e-5)
    assert found.warm_up_s is None
    assert (found.first_answer_s, found.total_s) == (None, None)


def test_lines_of_an_older_triton_have_no_quotation_marks() -> None:
    older = QUIET.replace('"loading: spellcheck:1"', "loading: spellcheck:1").replace(
        "\"successfully loaded 'spellcheck'\"", "successfully loaded 'spellcheck' version 1"
    )
    assert stages(lines(older)) == stages(lines(QUIET))


@pytest.mark.parametrize("log", ["", "Starting Gunicorn\nBooting worker with pid: 7\n"], ids=["none", "another server"])
def test_what_no_line_tells_is_unknown(log: str) -> None:
    found = stages(lines(log), requested_at=at(0.0), in_service_at=at(5.0), answered_s=0.1)
    known = {name for name in Stages.__dataclass_fields__ if getattr(found, name) is not None}
    assert known == ({"provisioning_s", "total_s"} if log else set())


def test_a_line_gets_the_year_that_brings_it_nearest_to_when_it_was_received() -> None:
    new_year = datetime(2027, 1, 1, 0, 0, 3, tzinfo=UTC).timestamp()
    line = LogLine(written_at=new_year, text='I1231 23:59:59.500000 1 model_lifecycle.cc:472] "loading: m:1"')
    assert new_year - line.at == pytest.approx(3.5, abs=1e-5)
    leap_day = datetime(2028, 2, 29, 12, tzinfo=UTC).timestamp()
    line = LogLine(written_at=leap_day, text='I0229 11:59:58.000000 1 model_lifecycle.cc:472] "loading: m:1"')
    assert leap_day - line.at == pytest.approx(2.0, abs=1e-5)


def test_several_starts_are_their_medians_and_what_they_were_between() -> None:
    starts = [Stages(load_s=load, total_s=total) for load, total in ((2.0, 5.0), (4.0, 6.0), (3.0, None))]
    system = a_system(stands_in=True, machine="m")
    told = cold_start(starts, system, ARCHIVE, datetime(2026, 11, 23, 9, 30, 1, 5, tzinfo=UTC))
    assert told.model_dump(exclude_none=True) == {
        "load_s": 3.0,
        "total_s": 5.5,
        "starts": 3,
        "ranges_s": {"load_s": (2.0, 4.0), "total_s": (5.0, 6.0)},
        "measured_on": "local",
        "machine": "m",
        "instance_type": "ml.c5.xlarge",
        "archive_sha256": ARCHIVE,
        "measured_at": "2026-11-23T09:30:01+00:00",
    }
