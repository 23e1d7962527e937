"""moto's CloudWatch with percentiles, and with periods of one second where a load test is to be read finer than on AWS.

Metric data is kept as values with counts, in buckets aligned on multiples of the period. A percentile is computed by
nearest rank. moto's own store gets one small datum per metric, for ListMetrics, and has the metrics of S3.
"""

import math
import operator
import re
import threading
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from moto.cloudwatch.exceptions import InvalidParameterCombination, ValidationError
from moto.cloudwatch.metric_data_expression_parser import parse_expression
from moto.cloudwatch.models import Alarm, CloudWatchBackend, MetricDatumBase
from moto.cloudwatch.responses import CloudWatchResponse
from moto.core.responses import ActionResult

_PERCENTILE = re.compile(r"^p(\d{1,2}(?:\.\d{1,10})?|100)$")
MINUTE_S = 60
HIGH_RESOLUTION = frozenset({"ConcurrentRequestsPerModel"})
"""Metrics of AWS services that are published more often than each minute:
https://docs.aws.amazon.com/sagemaker/latest/dg/monitoring-cloudwatch.html"""
STATISTICS = ("SampleCount", "Average", "Sum", "Minimum", "Maximum")
COMPARISONS = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
}
"""Comparisons of a datapoint with an alarm's threshold."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """Values seen at one moment (Unix time in seconds), with the count of each."""

    at: float
    values: tuple[float, ...]
    counts: tuple[float, ...]
    unit: str | None = None


def is_statistic(name: str) -> bool:
    return name in STATISTICS or _PERCENTILE.match(name) is not None


def buckets(
    data: Iterable[Distribution], start: float, end: float, period_s: int, unit: str | None = None
) -> dict[int, list[Distribution]]:
    """Groups the data of [start, end) by bucket, oldest first. A bucket's key is its first second."""
    by_second: defaultdict[int, list[Distribution]] = defaultdict(list)
    for datum in data:
        if start <= datum.at < end and unit in (None, datum.unit):
            by_second[int(datum.at // period_s) * period_s].append(datum)
    return dict(sorted(by_second.items()))


def statistic(name: str, data: Sequence[Distribution]) -> float:
    """Computes a statistic of a bucket. Raises ValueError for an unknown name."""
    if match := _PERCENTILE.match(name):
        return percentile(data, float(match[1]))
    count = sum(sum(datum.counts) for datum in data)
    total = sum(value * count for datum in data for value, count in zip(datum.values, datum.counts, strict=True))
    match name:
        case "SampleCount":
            return count
        case "Sum":
            return total
        case "Average":
            return total / (count or math.nan)
        case "Minimum":
            return min(min(datum.values) for datum in data)
        case "Maximum":
            return max(max(datum.values) for datum in data)
    raise ValueError(f"'{name}' is no statistic that this account computes.")


def percentile(data: Iterable[Distribution], rank: float) -> float:
    """Returns the smallest value that at least `rank` percent of all values do not exceed."""
    weights: defaultdict[float, float] = defaultdict(float)
    for datum in data:
        for value, count in zip(datum.values, datum.counts, strict=True):
            weights[value] += count
    wanted, seen, value = rank / 100 * sum(weights.values()), 0.0, math.nan
    for value in sorted(weights):
        seen += weights[value]
        if seen >= wanted:
            break
    return value


Key = tuple[str, str, frozenset[tuple[str, str]]]
MAX_DATA_POINTS = 86_400


def metric_key(namespace: str, name: str, dimensions: Sequence[Mapping[str, str]]) -> Key:
    return namespace, name, frozenset((item["Name"], item["Value"]) for item in dimensions)


def alarm_key(alarm: Alarm) -> Key:
    """Returns the key of the metric that an alarm watches."""
    return alarm.namespace, alarm.metric_name, frozenset((str(e.name), str(e.value)) for e in alarm.dimensions)


class LocalCloudWatchBackend(CloudWatchBackend):
    """Without `finer`, a service's metrics have a datum each minute, as on AWS."""

    def __init__(self, region_name: str, account_id: str, *, finer: bool = False) -> None:
        super().__init__(region_name, account_id)
        self.finer = finer
        self._distributions: defaultdict[Key, deque[Distribution]] = defaultdict(lambda: deque(maxlen=MAX_DATA_POINTS))
        self._lock = threading.Lock()

    def put_metric_data(self, namespace: str, metric_data: list[dict[str, Any]]) -> None:
        for number, metric in enumerate(metric_data, start=1):
            self._validate_parameters_put_metric_data(metric, number)
        for metric in metric_data:
            dimensions = metric.get("Dimensions", [])
            self.put(metric_key(namespace, metric["MetricName"], dimensions), distribution(metric))

    def put(self, key: Key, datum: Distribution) -> None:
        namespace, name, dimensions = key
        if namespace.lower().startswith(("aws/", "/aws/")) and not (self.finer or name in HIGH_RESOLUTION):
            datum = replace(datum, at=datum.at // MINUTE_S * MINUTE_S)
        with self._lock:
            if key not in self._distributions:
                named = [{"Name": name, "Value": value} for name, value in sorted(dimensions)]
                moment = datetime.fromtimestamp(datum.at, UTC).replace(tzinfo=None)
                self.metric_data.append(MetricDatumBase(namespace, name, named, moment, datum.unit))
            self._distributions[key].append(datum)

    def get_metric_data(
        self,
        queries: list[dict[str, Any]],
        start_time: datetime,
        end_time: datetime,
        scan_by: str = "TimestampDescending",
    ) -> list[dict[str, Any]]:
        if start_time >= end_time:
            raise ValidationError("The parameter EndTime must be greater than StartTime.")
        window = (_epoch(start_time), _epoch(end_time))
        answered = {
            query["Id"]: self._answer(query, window, scan_by)
            for query in queries
            if "MetricStat" in query and self.knows(_key_of(query["MetricStat"]["Metric"]))
        }
        others = [query for query in queries if "MetricStat" in query and query["Id"] not in answered]
        if others:
            results = super().get_metric_data(others, start_time, end_time, scan_by)
            answered |= {result["id"]: result for result in results}
        for query in queries:
            if "Expression" in query:
                values, times = parse_expression(query["Expression"], list(answered.values()))
                answered[query["Id"]] = _result(query["Id"], query.get("Label") or query["Id"], times, values)
        return [answered[query["Id"]] for query in queries if query.get("ReturnData", True)]

    def by_period(
        self, key: Key, start: float, end: float, period_s: int, unit: str | None = None
    ) -> dict[int, list[Distribution]]:
        """Returns the data of [start, end), Unix times, by the first second of their period.

        GetMetricData rounds the start down to a minute, or to a shorter period.
        """
        start -= start % min(period_s, MINUTE_S)
        with self._lock:
            data = list(self._distributions.get(key, ()))
        return buckets(data, start, end, period_s, unit)

    def knows(self, key: Key) -> bool:
        with self._lock:
            return key in self._distributions

    def _answer(self, query: Mapping[str, Any], window: tuple[float, float], scan_by: str) -> dict[str, Any]:
        wanted = query["MetricStat"]
        metric, name = wanted["Metric"], wanted["Stat"]
        if not is_statistic(name):
            raise ValidationError(f"Statistic {name} is none that this local account computes.")
        key = _key_of(metric)
        by_second = self.by_period(key, *window, int(wanted["Period"]), wanted.get("Unit"))
        values = [statistic(name, data) for data in by_second.values()]
        times = [_moment(second) for second in by_second]
        if scan_by == "TimestampDescending":
            values.reverse()
            times.reverse()
        return _result(query["Id"], query.get("Label") or f"{metric['MetricName']} {name}", times, values)


class LocalCloudWatchResponse(CloudWatchResponse):
    def put_composite_alarm(self) -> ActionResult:
        """Puts it as a metric alarm: moto's alarms may have a rule, and its own operation reads it."""
        return super().put_metric_alarm()

    def get_metric_statistics(self) -> ActionResult:
        """Answers like moto, and with ExtendedStatistics."""
        names = [*(self._get_param("Statistics") or []), *(self._get_param("ExtendedStatistics") or [])]
        if not names:
            raise InvalidParameterCombination("Must specify either Statistics or ExtendedStatistics")
        name = self._get_param("MetricName")
        key = metric_key(self._get_param("Namespace"), name, self._get_param("Dimensions", []))
        backend = self.cloudwatch_backend
        if not isinstance(backend, LocalCloudWatchBackend) or not backend.knows(key):
            return super().get_metric_statistics()
        start, end = _epoch(self._get_param("StartTime")), _epoch(self._get_param("EndTime"))
        found = backend.by_period(key, start, end, int(self._get_param("Period")), self._get_param("Unit"))
        return ActionResult(
            {"Label": name, "Datapoints": [_datapoint(second, data, names) for second, data in found.items()]}
        )


def _key_of(metric: Mapping[str, Any]) -> Key:
    return metric_key(metric["Namespace"], metric["MetricName"], metric.get("Dimensions", []))


def distribution(metric: Mapping[str, Any]) -> Distribution:
    """Reads a MetricDatum. StatisticValues become a few values with the same sum, count, minimum and maximum."""
    at = _epoch(metric["Timestamp"]) if metric.get("Timestamp") else datetime.now(UTC).timestamp()
    unit = metric.get("Unit")
    if values := metric.get("Values"):
        counts = metric.get("Counts") or [1.0] * len(values)
        return Distribution(at, tuple(map(float, values)), tuple(map(float, counts)), unit)
    if stats := metric.get("StatisticValues"):
        return _from_statistics(at, {name: float(value) for name, value in stats.items()}, unit)
    return Distribution(at, (float(metric.get("Value", 0)),), (1.0,), unit)


def _from_statistics(at: float, stats: Mapping[str, float], unit: str | None) -> Distribution:
    low, high, count, total = (stats[name] for name in ("Minimum", "Maximum", "SampleCount", "Sum"))
    if count <= 2:
        return Distribution(at, (total / count if count else 0.0,), (count,), unit)
    middle = (total - low - high) / (count - 2)
    return Distribution(at, (low, middle, high), (1.0, count - 2, 1.0), unit)


def _datapoint(second: int, data: Sequence[Distribution], names: Sequence[str]) -> dict[str, Any]:
    simple = {name: statistic(name, data) for name in names if name in STATISTICS}
    extended = {name: statistic(name, data) for name in names if name not in STATISTICS}
    unit = {"Unit": data[0].unit or "None"}
    return {"Timestamp": _moment(second), **unit, **simple, **({"ExtendedStatistics": extended} if extended else {})}


def _result(key: str, label: str, times: Sequence[datetime], values: Sequence[Any]) -> dict[str, Any]:
    return {"id": key, "label": label, "values": list(values), "timestamps": list(times), "status_code": "Complete"}


def _epoch(moment: datetime) -> float:
    """Returns Unix time. moto passes moments on without their time zone; they are UTC."""
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(second, UTC)
