"""The report is one self-contained page, the same for the same input, for light and dark and for narrow screens."""

import json
import re
from urllib.parse import unquote

from inference_recommender.capacity.probe import Probe
from inference_recommender.capacity.rate import Capacity
from inference_recommender.report.page import draw, page
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import decide


def test_the_page_needs_nothing_from_outside(kept: RunFolder) -> None:
    text = kept.report.read_text("utf-8")
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:" in text
    assert "http" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", text.partition("<script>")[2])
    assert text.count("<svg") == 3


def test_each_figure_has_its_data_in_a_link(kept: RunFolder) -> None:
    links = re.findall(
        r'<a download="([^"]+)" href="data:text/csv;charset=utf-8,([^"]+)"', kept.report.read_text("utf-8")
    )
    of = {name: unquote(data).splitlines() for name, data in links}
    assert list(of) == [
        "throughput-over-time-ml.c5.xlarge.csv",
        "users-and-open-arrivals-ml.c5.xlarge.csv",
        "latency-distribution-ml.c5.xlarge.csv",
    ]
    assert (
        of["latency-distribution-ml.c5.xlarge.csv"][0] == 'series,"model latency, ms","invocations answered within, %"'
    )
    assert any(line.startswith("model latency,") for line in of["latency-distribution-ml.c5.xlarge.csv"])
    assert any(
        line.startswith('"open arrivals, estimated",') for line in of["users-and-open-arrivals-ml.c5.xlarge.csv"]
    )


def test_the_decision_is_the_first_card_and_what_was_not_tested_is_said(kept: RunFolder) -> None:
    text = kept.report.read_text("utf-8")
    first = text[text.index("<section") :]
    assert first.startswith(
        '<section class="card decision met">\n  <h2>Deploy 47 × ml.c5.xlarge THREADS=2, for 23.50 USD'
    )
    assert "No fleet was proven with open arrivals; the command prove does it." in text
    assert '<td class="text">max_batch_size</td>' in text


def test_the_page_says_what_was_decided_and_why(kept: RunFolder) -> None:
    text = kept.report.read_text("utf-8")
    assert "47 × ml.c5.xlarge" in text
    assert "Asked: P99 model latency ≤ 50 ms at 240,000 invocations per minute." in text
    assert (
        "Estimate: meets P99 model latency ≤ 50 ms up to 6,151 invocations/min with open-loop arrivals. The "
        "closed-loop test reached 12,000."
    ) in text
    assert "10 to 94" in text


def test_the_page_is_drawn_again_from_the_run_folder_to_the_same_bytes(kept: RunFolder) -> None:
    before = kept.report.read_text("utf-8")
    draw(kept)
    assert kept.report.read_text("utf-8") == before


def test_a_phase_that_the_test_never_reached_is_not_marked(kept: RunFolder) -> None:
    request = kept.request()
    request["InputConfig"]["TrafficPattern"]["Phases"][0]["DurationInSeconds"] = 600
    text = page(kept.workload(), kept.recommendation(), kept.measurements(), request)
    assert "phase 1" in text
    assert "phase 2" not in text


def test_a_test_without_a_time_series_is_said_to_have_none(kept: RunFolder) -> None:
    bare = tuple(measured.model_copy(update={"series": None}) for measured in kept.measurements())
    assert "There is no time series of this test." in page(kept.workload(), kept.recommendation(), bare, kept.request())


INFORMED = {
    "open_loop": Capacity(
        invocations_per_minute=9_600.0,
        interval=(9_000.0, 10_500.0),
        percentile="P99",
        limit_ms=50.0,
        latency_ms=48.0,
        reason="the capacity is known to its resolution",
        probes=(
            Probe(invocations_per_minute=9_000.0, duration_s=20.0, latency_ms=40.0, late_share=0.004),
            Probe(invocations_per_minute=10_400.0, duration_s=20.0, latency_ms=None, late_share=0.03),
        ),
    ),
    "warm_up_s": 6.0,
    "client_latency_ms": {"p99": 14.0, "p50": 5.0, "p90": 9.0},
    "client_latency_from_intended_ms": {"p50": 5.25, "p99": 18.5},
}


def _informed_page(kept: RunFolder) -> str:
    measured = tuple(measured.model_copy(update=INFORMED) for measured in kept.measurements())
    old = kept.recommendation()
    recommendation = decide(kept.workload(), old.archive_sha256, measured, old.provenance)
    return page(kept.workload(), recommendation, measured, kept.request())


def test_the_page_says_how_sure_the_rate_is_and_what_was_left_out(kept: RunFolder) -> None:
    text = _informed_page(kept)
    assert "95 % interval: 9,000 to 10,500." in text
    assert "Warm-up: 6 s, not counted." in text
    assert "Instances: 25 for the peak, plus headroom 5." in text
    assert re.search(r"<th>peak</th><th>headroom</th></tr>\s*<tr><td>25</td><td>\+ 5</td>", text)
    assert "warm-up</text>" in text


def test_the_page_says_how_the_count_came_about(kept: RunFolder) -> None:
    assert (
        "The peak of 240,000 invocations/min needs 25 instances at 9,600 each. 20 % headroom adds 5: 30 "
        "instances in all. Autoscaling adds an instance when the average exceeds 4,800 invocations/min per instance, "
        "50 % of its capacity."
    ) in _informed_page(kept)


def test_cpu_above_100_percent_is_said_to_be_of_all_vcpus(kept: RunFolder) -> None:
    """The instance type's, or those of the machine that stood in for it."""
    busy = tuple(measured.model_copy(update={"cpu_utilization_percent": 184.2}) for measured in kept.measurements())
    origin = kept.recommendation().provenance
    local = origin.model_copy(update={"measured_on": "local", "machine": "AMD EPYC with 2 cores"})
    for provenance, said in ((origin, "184 of 400 % (4\N{NO-BREAK SPACE}vCPUs)"), (local, "184 of 200 % (2\xa0vCPUs)")):
        recommendation = decide(kept.workload(), "0" * 64, busy, provenance)
        assert f">{said}<" in page(kept.workload(), recommendation, busy, kept.request())


def test_every_colour_is_one_that_the_page_sets_for_light_and_dark(kept: RunFolder) -> None:
    style, _, body = kept.report.read_text("utf-8").partition("</style>")
    assert not re.findall(r"(?:fill|stroke): ?(#[0-9a-f]+)", body)
    for name in set(re.findall(r"var\((--[a-z-]+)\)", body)):
        assert style.count(f"{name}:") == 2, name
    assert "prefers-color-scheme: dark" in style


def test_the_page_shows_what_the_way_to_the_server_cost(kept: RunFolder) -> None:
    text = _informed_page(kept)
    assert "Client latency p99: 14 ms from send, 18.5 ms from intended send." in text
    assert "<tr><td>p50</td><td>5</td><td>5.25</td><td>0.25</td></tr>" in text
    assert "<tr><td>p99</td><td>14</td><td>18.5</td><td>4.5</td></tr>" in text


def test_a_recommendation_of_before_these_facts_is_still_drawn(kept: RunFolder) -> None:
    old = json.loads(kept.recommendation().model_dump_json())
    for candidate in (old["recommended"], *old["candidates"]):
        for key in ("warm_up_s", "client_latency_ms", "client_latency_from_intended_ms", "instance_count_parts"):
            del candidate[key]
        candidate["max_invocations_interval"] = None
    file = kept.path / "recommendation.json"
    file.write_text(json.dumps(old), "utf-8")
    text = page(kept.workload(), kept.recommendation(), kept.measurements(), kept.request())
    assert "47 × ml.c5.xlarge" in text
    assert "interval" not in text
    assert "Client latency" not in text


def test_the_page_shows_users_beside_open_arrivals(kept: RunFolder) -> None:
    """Both rates, how ours is known, and the latencies of both against the rate."""
    text = _informed_page(kept)
    assert re.search(r"<td>9,600</td>\s*<td>open-loop</td>\s*<td>12,000</td>", text)
    for legend in (
        "P99 of closed-loop users",
        "open arrivals, estimated",
        "open arrivals, measured",
        "sizes the fleet, 9,600/min",
        "closed-loop rate 12,000/min",
        "95 % interval",
    ):
        assert f"{legend}</text>" in text, legend
    estimated = kept.report.read_text("utf-8")
    assert "<td>estimate</td>" in estimated
    assert "open arrivals, measured" not in estimated
