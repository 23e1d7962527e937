"""Alarms and dashboard of a batch: runs that failed, were late, missing, or slower than the objective."""

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from stacks.batch.steps import BatchSteps
from stacks.context import Options
from stacks.ecs import metrics as ecs_metrics
from stacks.paging import Paging
from stacks.widgets import HOURS_PER_DAY, limit_line
from workloads import ThroughputObjective


class BatchWatch(Construct):
    """`paging.topic` to subscribe to."""

    def __init__(
        self,
        scope: Construct,
        id: str,
        *,
        workload: str,
        steps: BatchSteps,
        objective: ThroughputObjective,
        deadline_hours: int,
        options: Options,
        daily: bool,
        own_key: bool,
    ) -> None:
        super().__init__(scope, id)
        self._steps, self._deadline_hours, self._objective = steps, deadline_hours, objective
        self._workload = workload
        alarms = [self._failed(), self._late(), self._slow(), *([self._absent()] if daily else [])]
        self.paging = Paging(self, "Paging", workload=workload, alarms=alarms, options=options, own_key=own_key)
        self._dashboard()

    def _failed(self) -> cloudwatch.Alarm:
        machine, period = self._steps.machine, Duration.minutes(5)
        ended = cloudwatch.MathExpression(
            expression="failed + aborted",
            using_metrics={
                "failed": machine.metric_failed(period=period),
                "aborted": machine.metric_aborted(period=period),
            },
            period=period,
            label="Runs that failed or were stopped",
        )
        description = "A run failed or was stopped. Its log names the step. Start it again for the same day."
        return self._at_least_one("Failed", ended, description)

    def _late(self) -> cloudwatch.Alarm:
        late = self._steps.machine.metric_timed_out(period=Duration.minutes(5))
        hours = self._deadline_hours
        description = f"A run took more than {hours} hours and was stopped. Its answers are kept."
        return self._at_least_one("Late", late, description)

    def _slow(self) -> cloudwatch.Alarm:
        limit = self._objective.rows_per_second
        return self._alarm(
            "Slow",
            ecs_metrics.rows_per_second(self._workload).with_(period=Duration.hours(1)),
            cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            limit,
            f"A run was slower than the objective, {limit:,g} rows a second.",
        )

    def _absent(self) -> cloudwatch.Alarm:
        """Is on without data, too. Two runs that keep the deadline end at most a day and a deadline apart."""
        hours = HOURS_PER_DAY + self._deadline_hours
        return self._alarm(
            "Absent",
            self._steps.machine.metric_succeeded(period=Duration.hours(1)),
            cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
            1,
            f"No run succeeded in the last {hours} hours. The alarm is also on before the first run.",
            periods=hours,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )

    def _at_least_one(self, id: str, metric: cloudwatch.IMetric, description: str) -> cloudwatch.Alarm:
        at_least = cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD
        return self._alarm(id, metric, at_least, 1, description)

    def _alarm(
        self,
        id: str,
        metric: cloudwatch.IMetric,
        comparison: cloudwatch.ComparisonOperator,
        threshold: float,
        description: str,
        periods: int = 1,
        missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING,
    ) -> cloudwatch.Alarm:
        return cloudwatch.Alarm(
            self,
            id,
            metric=metric,
            threshold=threshold,
            comparison_operator=comparison,
            evaluation_periods=periods,
            treat_missing_data=missing,
            alarm_description=description,
        )

    def _dashboard(self) -> None:
        workload, machine, day = self._workload, self._steps.machine, Duration.days(1)
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
            _bars("Rows per second", ecs_metrics.rows_per_second(workload).with_(period=day), limit=limit),
            _bars(
                "Rows, and bad ones",
                *(metric(workload).with_(period=day) for metric in (ecs_metrics.rows, ecs_metrics.bad_rows)),
            ),
        )


def _bars(
    title: str, *metrics: cloudwatch.IMetric, limit: cloudwatch.HorizontalAnnotation | None = None
) -> cloudwatch.GraphWidget:
    """Draws bars, because one point a day makes no line. A limit needs a time series."""
    return cloudwatch.GraphWidget(
        title=title,
        left=list(metrics),
        left_annotations=[limit] if limit else [],
        view=cloudwatch.GraphWidgetView.BAR if limit is None else cloudwatch.GraphWidgetView.TIME_SERIES,
        width=12,
        height=6,
    )
