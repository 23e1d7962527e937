"""Alarms and dashboard of a batch: runs that failed, were late, missing, or slower than the objective."""

from collections.abc import Iterator

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.context import Options
from stacks.ecs.metrics import BatchMetrics
from stacks.paging import Paging
from stacks.widgets import HOURS_PER_DAY, graph, limit_line
from workloads import ThroughputObjective

BELOW = cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD


class BatchWatch(Construct):
    """`paging.topic` to subscribe to."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        batch: BatchMetrics,
        objective: ThroughputObjective,
        deadline_hours: int,
        options: Options,
        daily: bool,
        own_key: bool,
    ) -> None:
        super().__init__(scope, id)
        self._batch, self._objective = batch, objective
        alarms = [*self._alarms(deadline_hours), *([self._absent(deadline_hours)] if daily else [])]
        self.paging = Paging(self, "Paging", workload=batch.workload, alarms=alarms, options=options, own_key=own_key)
        self._dashboard()

    def _alarms(self, deadline_hours: int) -> Iterator[cloudwatch.Alarm]:
        machine, period, limit = self._batch.machine, Duration.minutes(5), self._objective.rows_per_second
        ended = cloudwatch.MathExpression(
            expression="failed + aborted",
            using_metrics={
                "failed": machine.metric_failed(period=period),
                "aborted": machine.metric_aborted(period=period),
            },
            period=period,
            label="Runs that failed or were stopped",
        )
        text = "A run failed or was stopped. Its log names the step. Start it again for the same day."
        yield self._alarm("Failed", ended, 1, text)
        text = f"A run took more than {deadline_hours} hours and was stopped. Its answers are kept."
        yield self._alarm("Late", machine.metric_timed_out(period=period), 1, text)
        rate = self._batch.metric_rows_per_second().with_(period=Duration.hours(1))
        text = f"A run was slower than the objective, {limit:,g} rows a second."
        yield self._alarm("Slow", rate, limit, text, BELOW)

    def _absent(self, deadline_hours: int) -> cloudwatch.Alarm:
        """Is on without data, too. Two runs that keep the deadline end at most a day and a deadline apart."""
        hours = HOURS_PER_DAY + deadline_hours
        succeeded = self._batch.machine.metric_succeeded(period=Duration.hours(1))
        text = f"No run succeeded in the last {hours} hours. The alarm is also on before the first run."
        return self._alarm("Absent", succeeded, 1, text, BELOW, hours, cloudwatch.TreatMissingData.BREACHING)

    def _alarm(
        self,
        id: str,
        metric: cloudwatch.IMetric,
        threshold: float,
        description: str,
        comparison: cloudwatch.ComparisonOperator | None = None,
        periods: int = 1,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,  # By default at or above the threshold.
            evaluation_periods=periods,
            treat_missing_data=missing,
            alarm_description=description,
        )

    def _dashboard(self) -> None:
        batch, machine, day = self._batch, self._batch.machine, Duration.days(1)
        dashboard = cloudwatch.Dashboard(self, "Dashboard", default_interval=Duration.days(14))
        limit = limit_line("Objective", self._objective.rows_per_second)
        dashboard.add_widgets(
            cloudwatch.AlarmStatusWidget(title="Is anything wrong?", alarms=[self.paging.alarm], width=24, height=3)
        )
        dashboard.add_widgets(
            _bars("Runs a day", machine.metric_succeeded(period=day), machine.metric_failed(period=day)),
            _bars("Duration of a run (ms)", machine.metric_time(period=day, statistic="Maximum")),
        )
        dashboard.add_widgets(
            _bars("Rows per second", batch.metric_rows_per_second().with_(period=day), limit=limit),
            _bars(
                "Rows, and bad ones",
                *(metric.with_(period=day) for metric in (batch.metric_rows(), batch.metric_bad_rows())),
            ),
        )


def _bars(
    title: str, *metrics: cloudwatch.IMetric, limit: cloudwatch.HorizontalAnnotation | None = None
) -> cloudwatch.GraphWidget:
    """Draws bars, because one point a day makes no line. A limit needs a time series."""
    view = cloudwatch.GraphWidgetView.BAR if limit is None else cloudwatch.GraphWidgetView.TIME_SERIES
    return graph(title, *metrics, limits=[limit] if limit else [], view=view)
