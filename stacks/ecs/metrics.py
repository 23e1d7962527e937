"""Metrics of ECS workloads from the programs' logs and from callers. A network load balancer counts no requests."""

from collections.abc import Mapping

from aws_cdk import Aws
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_ecs as ecs
from aws_cdk import aws_elasticloadbalancingv2 as elb
from aws_cdk import aws_stepfunctions as sfn

from stacks.endpoint.metrics import MINUTE, ReportedMetrics


class EcsMetrics(ReportedMetrics):
    """Two stages of a workload report under different stacks."""

    stack: str = Aws.STACK_NAME


class ServiceMetrics(EcsMetrics):
    """Metrics of a service behind a network load balancer. `target_groups` are by protocol."""

    service: ecs.Ec2Service
    balancer: elb.NetworkLoadBalancer
    target_groups: Mapping[str, elb.NetworkTargetGroup]

    def metric_invocations(self) -> cloudwatch.Metric:
        """Invocations per minute of all tasks together."""
        return self._reported("Invocations", "Sum")

    def metric_invocations_per_task(self) -> cloudwatch.Metric:
        """Invocations per minute of one task, on average: each task reports one number."""
        return self._reported("Invocations", "Average")

    def metric_server_errors(self) -> cloudwatch.Metric:
        return self._reported("ServerErrors", "Sum")

    def metric_server_error_rate(self) -> cloudwatch.MathExpression:
        """Share of the invocations answered with a 5xx, from 0 to 1."""
        return cloudwatch.MathExpression(
            expression="errors / invocations",
            using_metrics={"errors": self.metric_server_errors(), "invocations": self.metric_invocations()},
            label="Share of 5xx",
            period=MINUTE,
        )

    def metric_healthy_tasks(self) -> cloudwatch.Metric:
        return self.target_groups["http"].metrics.healthy_host_count(period=MINUTE, statistic="Minimum")

    def metric_unhealthy_tasks(self) -> cloudwatch.Metric:
        return self.target_groups["http"].metrics.un_healthy_host_count(period=MINUTE, statistic="Maximum")

    def metric_resets(self) -> cloudwatch.Metric:
        """Connections that tasks reset, per minute."""
        return self.balancer.metrics.tcp_target_reset_count(period=MINUTE, statistic="Sum")

    def metric_cpu(self) -> cloudwatch.Metric:
        """Per cent of what the tasks reserve, which is all of their instances' vCPUs."""
        return self.service.metric_cpu_utilization(period=MINUTE)

    def metric_memory(self) -> cloudwatch.Metric:
        """Per cent of what the tasks reserve; often over 100, because they reserve little and have no limit."""
        return self.service.metric_memory_utilization(period=MINUTE)


class BatchMetrics(EcsMetrics):
    """Metrics of a batch. `machine` runs its steps."""

    machine: sfn.StateMachine

    def metric_rows_per_second(self) -> cloudwatch.Metric:
        """Rows per second of all shards of a batch together; with several runs in a period, the slowest run's."""
        return self._reported("RowsPerSecond", "Minimum")

    def metric_rows(self) -> cloudwatch.Metric:
        return self._reported("Rows", "Sum")

    def metric_bad_rows(self) -> cloudwatch.Metric:
        return self._reported("BadRows", "Sum")
