"""The stack of an ECS service: one test for each intention."""

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import Environment
from aws_cdk.assertions import Match

from stacks.context import Options
from stacks.ecs.service import START_UP
from tests.stacks.miniature import Repository, Synthesis, kinds, make_ec2_repository, service_candidate, synthesis_of
from tests.stacks.templates import filled, lint_matches, nag_findings
from tests.stacks.test_templates import CDKS_OWN
from workloads import Autoscaling, LatencyObjective, ScheduledMinimum, load_workload

KEY = "arn:aws:kms:us-east-1:123456789012:key/01234567-89ab-cdef-0123-456789abcdef"
IMAGE = "123456789012.dkr.ecr.us-east-1.amazonaws.com/ours:1"

VPC = {"id": "vpc-0a1b", "cidr": "172.16.0.0/16", "subnet_ids": ["subnet-1a"], "availability_zones": ["us-east-1a"]}
TLS = {
    "certificate_arn": "arn:aws:acm:us-east-1:123456789012:certificate/0123-4567",
    "domain_name": "intent.example.com",
}
PRINCIPALS = ["arn:aws:iam::210987654321:root", "arn:aws:iam::210987654321:role/search/Frontend"]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return make_ec2_repository(tmp_path, "query_intent")


def containers(synthesis: Synthesis) -> dict[str, dict[str, Any]]:
    return {each["Name"]: each for each in synthesis.only("AWS::ECS::TaskDefinition")["ContainerDefinitions"]}


def environment_of(container: dict[str, Any]) -> dict[str, Any]:
    return {each["Name"]: each["Value"] for each in container["Environment"]}


def test_a_task_has_every_chip_of_its_instance_and_every_vcpu(service: Synthesis) -> None:
    server = containers(service)["server"]
    assert server["LinuxParameters"]["Devices"] == [
        {"HostPath": device, "ContainerPath": device, "Permissions": ["read", "write"]}
        for device in ("/dev/neuron0", "/dev/neuron1", "/dev/neuron2", "/dev/neuron3")
    ]
    assert server["Cpu"] == 24 * 1024
    assert server["Command"] == ["serve"]
    assert server["LinuxParameters"]["Capabilities"] == {"Add": ["IPC_LOCK"]}


def test_the_archive_is_fetched_and_unpacked_before_the_server_starts(service: Synthesis) -> None:
    model, server = (containers(service)[name] for name in ("model", "server"))
    assert filled(model["Command"][:3]) == ["python3", "-m", "containers.batch.archive"]
    assert model["Command"][3]["Fn::Sub"].endswith(".tar.gz")
    assert model["Command"][4] == environment_of(server)["MODEL_FOLDER"] == "/opt/ml/model"
    assert model["Essential"] is False
    assert server["DependsOn"] == [{"ContainerName": "model", "Condition": "SUCCESS"}]
    mounts = [(each["MountPoints"][0]["ContainerPath"], each["MountPoints"][0]["ReadOnly"]) for each in (model, server)]
    assert mounts == [("/opt/ml/model", False), ("/opt/ml/model", True)]


def test_inf2_needs_one_changed_line(tmp_path: Path, service: Synthesis) -> None:
    repository = make_ec2_repository(tmp_path, "query_intent", "inf2")
    repository.recommend(service_candidate(instance_type="inf2.xlarge"))
    synthesis = repository.synthesise()
    server = containers(synthesis)["server"]
    assert [each["HostPath"] for each in server["LinuxParameters"]["Devices"]] == ["/dev/neuron0"]
    assert server["Cpu"] == 4 * 1024
    assert synthesis.only("AWS::EC2::LaunchTemplate")["LaunchTemplateData"]["InstanceType"] == "inf2.xlarge"
    assert server["Command"] == containers(service)["server"]["Command"]
    assert "/transformers-in-production:inf2-" in filled(server["Image"])
    assert kinds(synthesis) == kinds(service)
    assert synthesis.notes("inferentia:legacy") == []


def test_on_cpu_triton_serves_http_and_grpc_without_devices(on_cpu: Synthesis) -> None:
    server = containers(on_cpu)["server"]
    shell, option, script = server["Command"]
    assert [shell, option] == ["sh", "-c"]
    assert " tritonserver --model-repository=/opt/ml/model " in script
    assert "Devices" not in server["LinuxParameters"]
    assert server["LinuxParameters"]["Capabilities"] == {}
    assert [each["ContainerPort"] for each in server["PortMappings"]] == [8000, 8001]
    listeners = on_cpu.of_type("AWS::ElasticLoadBalancingV2::Listener").values()
    assert {each["Properties"]["Port"] for each in listeners} == {8000, 8001}
    parameters = on_cpu.json["Parameters"].values()
    assert any("amazon-linux-2023/recommended" in str(each.get("Default")) for each in parameters)


def test_triton_loads_nothing_and_keeps_to_inference_health_and_metadata(on_cpu: Synthesis) -> None:
    script = containers(on_cpu)["server"]["Command"][2]
    assert "--model-control-mode=none" in script
    assert "--allow-metrics=false" in script
    closed = "model-repository,model-config,shared-memory,statistics,trace,logging"
    assert script.startswith("key=$(cat /proc/sys/kernel/random/uuid); exec ")
    for flag in ("--http-restricted-api", "--grpc-restricted-protocol"):
        assert f"{flag}={closed}:key=$key" in script


def test_the_service_goes_before_the_association_of_its_capacity_provider(service: Synthesis) -> None:
    (made,) = service.of_type("AWS::ECS::Service").values()
    kinds = [service.json["Resources"][name]["Type"] for name in made["DependsOn"]]
    assert "AWS::ECS::ClusterCapacityProviderAssociations" in kinds


def test_only_the_vpc_reaches_the_service(service: Synthesis) -> None:
    assert service.only("AWS::ElasticLoadBalancingV2::LoadBalancer")["Scheme"] == "internal"
    for group in service.of_type("AWS::EC2::SecurityGroup").values():
        for rule in group["Properties"].get("SecurityGroupIngress", ()):
            assert rule["CidrIp"] == "10.0.0.0/16"
    (into_tasks,) = service.of_type("AWS::EC2::SecurityGroupIngress").values()
    assert into_tasks["Properties"]["FromPort"] == 8080
    assert "SourceSecurityGroupId" in into_tasks["Properties"]


def test_a_target_is_healthy_when_its_server_is_ready_and_drains_before_it_goes(service: Synthesis) -> None:
    group = service.only("AWS::ElasticLoadBalancingV2::TargetGroup")
    assert (group["Protocol"], group["HealthCheckProtocol"]) == ("TCP", "HTTP")
    assert group["HealthCheckPath"] == "/v2/health/ready"
    attributes = {each["Key"]: each["Value"] for each in group["TargetGroupAttributes"]}
    assert attributes["deregistration_delay.timeout_seconds"] == "60"
    assert attributes["deregistration_delay.connection_termination.enabled"] == "true"
    health = containers(service)["server"]["HealthCheck"]
    assert health["StartPeriod"] + health["Retries"] * health["Interval"] == START_UP.to_seconds()
    assert health["Command"][1] == "curl --fail --silent http://localhost:8080/v2/health/ready || exit 1"


def test_a_simulated_policy_reaches_the_scaling_untouched(tmp_path: Path) -> None:
    """`simulate --optimise` chooses cooldowns and scheduled minimums, too, and its target as a share for the CPU."""
    repository = make_ec2_repository(tmp_path, "query_intent", "cpu")
    scaling = Autoscaling(
        min_capacity=3,
        max_capacity=9,
        target_invocations_per_instance=140_000.0,
        target_share=0.7,
        scale_out_cooldown_s=0,
        scale_in_cooldown_s=1800,
        scheduled_minimums=(ScheduledMinimum(schedule="cron(45 6 * * ? *)", min_capacity=7),),
    )
    repository.recommend(service_candidate(instance_type="c5.2xlarge", autoscaling=scaling))
    synthesis = repository.synthesise()
    (action,) = synthesis.only("AWS::ApplicationAutoScaling::ScalableTarget")["ScheduledActions"]
    assert (action["Schedule"], action["ScalableTargetAction"]) == ("cron(45 6 * * ? *)", {"MinCapacity": 7})
    policy = synthesis.only("AWS::ApplicationAutoScaling::ScalingPolicy")["TargetTrackingScalingPolicyConfiguration"]
    assert (policy["TargetValue"], policy["ScaleOutCooldown"], policy["ScaleInCooldown"]) == (70, 0, 1800)


def test_without_a_recommendation_one_task_runs_and_nothing_scales_it(repository: Repository) -> None:
    synthesis = repository.synthesise()
    assert not synthesis.of_type("AWS::ApplicationAutoScaling::ScalableTarget")
    assert synthesis.only("AWS::AutoScaling::AutoScalingGroup")["MaxSize"] == "2"


def test_the_5xx_alarm_follows_the_objective(service: Synthesis) -> None:
    objective = make_objective()
    (alarm,) = [
        each["Properties"]
        for each in service.of_type("AWS::CloudWatch::Alarm").values()
        if "Metrics" in each["Properties"]
    ]
    assert alarm["Threshold"] == objective.max_error_rate
    expression, *counted = alarm["Metrics"]
    assert expression["Expression"] == "errors / invocations"
    assert [each["MetricStat"]["Metric"]["MetricName"] for each in counted] == ["ServerErrors", "Invocations"]


def make_objective() -> LatencyObjective:
    return load_workload("query_intent").workload.latency_objective


def test_an_update_that_raises_an_alarm_is_rolled_back(service: Synthesis) -> None:
    watched = service.only("AWS::ECS::Service")["DeploymentConfiguration"]["Alarms"]
    assert (watched["Enable"], watched["Rollback"]) == (True, True)
    alarms = service.of_type("AWS::CloudWatch::Alarm")
    metrics = [alarms[each["Ref"]]["Properties"].get("MetricName") for each in watched["AlarmNames"]]
    assert metrics == ["ClientLatency", "ResponseTime", None, "Invocations"]  # the one without is a share of two


def test_metrics_that_triton_lacks_have_no_alarm_or_graph(on_cpu: Synthesis) -> None:
    alarms = on_cpu.of_type("AWS::CloudWatch::Alarm").values()
    watched = {each["Properties"].get("MetricName") for each in alarms}
    assert watched == {"ClientLatency", "UnHealthyHostCount", "TCP_Target_Reset_Count", "CPUUtilization"}
    body = filled(on_cpu.only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    assert not {"ResponseTime", "Invocations", "ServerErrors"} & set(json.dumps(json.loads(body)).split('"'))


def test_a_task_may_read_its_archive_and_nothing_else(service: Synthesis) -> None:
    policies = service.of_type("AWS::IAM::Policy").values()
    own = [each["Properties"] for each in policies if each["Properties"]["PolicyName"].startswith("TaskRole")]
    statements = [each for policy in own for each in policy["PolicyDocument"]["Statement"]]
    decrypt, read = sorted(statements, key=lambda each: isinstance(each["Action"], list))
    assert set(read["Action"]) == {"s3:GetObject*", "s3:GetBucket*", "s3:List*"}
    assert decrypt["Action"] == "kms:Decrypt"


def test_a_kms_key_is_used_only_if_the_workload_names_one(repository: Repository, service: Synthesis) -> None:
    assert not service.of_type("AWS::KMS::Key")
    repository.change_hosting(kms_key_arn=KEY)
    synthesis = repository.synthesise()
    assert synthesis.only("AWS::Logs::LogGroup")["KmsKeyId"] == KEY
    assert synthesis.only("AWS::SNS::Topic")["KmsMasterKeyId"]["Fn::GetAtt"][0] in synthesis.of_type("AWS::KMS::Key")


def test_an_existing_vpc_is_used_unchanged(repository: Repository) -> None:
    vpc = {**VPC, "subnet_ids": ["subnet-1a", "subnet-2b"], "availability_zones": ["us-east-1a", "us-east-1b"]}
    repository.change_hosting(vpc=vpc)
    synthesis = repository.synthesise(Environment(account="123456789012", region="us-east-1"))
    assert synthesis.app.node.try_find_child("SharedNetworkStack") is None
    assert not synthesis.stack.dependencies
    network = synthesis.only("AWS::ECS::Service")["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert network["Subnets"] == ["subnet-1a", "subnet-2b"]
    synthesis.template.has_resource_properties(
        "AWS::EC2::SecurityGroup",
        {"VpcId": "vpc-0a1b", "SecurityGroupIngress": [Match.object_like({"CidrIp": "172.16.0.0/16"})]},
    )


def test_zones_named_beside_a_vpc_choose_its_subnets(repository: Repository) -> None:
    vpc = {**VPC, "availability_zones": ["us-east-1a", "us-east-1b"], "subnet_ids": ["subnet-1a", "subnet-2b"]}
    repository.change_hosting(vpc=vpc, availability_zones=["us-east-1b"])
    network = repository.synthesise().only("AWS::ECS::Service")["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert network["Subnets"] == ["subnet-2b"]


@pytest.fixture(scope="module")
def reachable(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """A service on CPU with TLS, for connected networks and for other accounts."""
    repository = make_ec2_repository(tmp_path_factory.mktemp("reachable"), "query_intent", "cpu")
    repository.change_hosting(allowed_principals=PRINCIPALS, caller_cidrs=["10.7.0.0/16"], tls=TLS)
    return repository.synthesise(Environment(account="123456789012", region="us-east-1"))


def test_named_principals_reach_the_service_from_their_own_vpc(reachable: Synthesis) -> None:
    ((balancer, properties),) = (
        (name, each["Properties"])
        for name, each in reachable.of_type("AWS::ElasticLoadBalancingV2::LoadBalancer").items()
    )
    made = reachable.only("AWS::EC2::VPCEndpointService")
    assert (made["NetworkLoadBalancerArns"], made["AcceptanceRequired"]) == ([{"Ref": balancer}], False)
    assert reachable.only("AWS::EC2::VPCEndpointServicePermissions")["AllowedPrincipals"] == PRINCIPALS
    # Addresses of the callers' VPC are in no rule of the balancer's group.
    assert properties["EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic"] == "off"
    assert "EndpointServiceName" in reachable.json["Outputs"]


def test_without_principals_there_is_no_endpoint_service(service: Synthesis) -> None:
    assert not service.of_type("AWS::EC2::VPCEndpointService")
    balancer = service.only("AWS::ElasticLoadBalancingV2::LoadBalancer")
    assert "EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic" not in balancer
    assert "EndpointServiceName" not in service.json["Outputs"]


def test_the_load_balancer_ends_tls_for_http_and_grpc(reachable: Synthesis) -> None:
    listeners = [each["Properties"] for each in reachable.of_type("AWS::ElasticLoadBalancingV2::Listener").values()]
    assert {each["Port"]: each.get("AlpnPolicy") for each in listeners} == {8000: None, 8001: ["HTTP2Only"]}
    for each in listeners:
        assert (each["Protocol"], each["Certificates"]) == ("TLS", [{"CertificateArn": TLS["certificate_arn"]}])
        assert each["SslPolicy"].startswith("ELBSecurityPolicy-TLS13-1-2")
    groups = reachable.of_type("AWS::ElasticLoadBalancingV2::TargetGroup").values()
    assert {each["Properties"]["Protocol"] for each in groups} == {"TCP"}


def test_the_certificates_name_is_the_services_inside_the_vpc(reachable: Synthesis) -> None:
    assert reachable.json["Outputs"]["ServiceUrl"]["Value"] == "https://intent.example.com:8000"
    record = reachable.only("AWS::Route53::RecordSet")
    assert (record["Name"], record["Type"]) == ("intent.example.com.", "A")
    zone = reachable.only("AWS::Route53::HostedZone")
    assert (zone["Name"], len(zone["VPCs"])) == ("intent.example.com.", 1)


def test_in_an_existing_vpc_the_owner_makes_the_record(repository: Repository) -> None:
    repository.change_hosting(vpc=VPC, tls=TLS)
    assert not repository.synthesise().of_type("AWS::Route53::HostedZone")


def test_connected_networks_that_are_named_may_call(reachable: Synthesis) -> None:
    groups = [each["Properties"] for each in reachable.of_type("AWS::EC2::SecurityGroup").values()]
    admitted = [
        (rule["CidrIp"], rule["FromPort"]) for group in groups for rule in group.get("SecurityGroupIngress", ())
    ]
    assert admitted == [(cidr, port) for port in (8000, 8001) for cidr in ("10.0.0.0/16", "10.7.0.0/16")]


@pytest.mark.slow
def test_a_reachable_service_has_no_findings(reachable: Synthesis) -> None:
    assert nag_findings(reachable.app) == []
    assert {match.rule.id for match in lint_matches(reachable.json, "us-east-1", "eu-west-1")} <= CDKS_OWN


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """A service of the stage in which a release measures."""
    repository = make_ec2_repository(tmp_path_factory.mktemp("measured"), "query_intent")
    environment = Environment(account="123456789012", region="us-east-1")
    return repository.synthesise(environment, Options(recommendation="ignore"))


def test_a_release_measures_from_the_subnets_of_the_service(measured: Synthesis, service: Synthesis) -> None:
    project = measured.only("AWS::CodeBuild::Project")
    service_network = measured.only("AWS::ECS::Service")["NetworkConfiguration"]["AwsvpcConfiguration"]
    assert project["Name"] == "QueryIntentStack-Measure"
    assert project["VpcConfig"]["Subnets"] == service_network["Subnets"]
    commands = json.loads(filled(project["Source"]["BuildSpec"]))["phases"]["build"]["commands"]
    assert [command.split()[1] for command in commands if command.startswith("bash")] == [
        "scripts/release/smoke_test.sh",
        "scripts/release/measure_url.sh",
    ]
    assert not service.of_type("AWS::CodeBuild::Project")


def test_builds_without_internet_install_nothing_and_reach_codebuild_s3_and_logs(measured: Synthesis) -> None:
    (project,) = measured.of_type("AWS::CodeBuild::Project").values()
    assert not {"pip", "npm", "curl"} & set(filled(project["Properties"]["Source"]["BuildSpec"]).split())
    network = synthesis_of(measured.app, "SharedNetworkStack")
    names = [filled(each["Properties"]["ServiceName"]) for each in network.of_type("AWS::EC2::VPCEndpoint").values()]
    reached = {name.removeprefix("com.amazonaws.us-east-1.") for name in names}
    assert {"codebuild", "logs", "s3"} <= reached


@pytest.mark.slow
def test_a_measured_service_has_no_findings(measured: Synthesis) -> None:
    assert nag_findings(measured.app) == []
    assert {match.rule.id for match in lint_matches(measured.json, "us-east-1", "eu-west-1")} <= CDKS_OWN


def test_an_own_image_gives_no_warning(repository: Repository) -> None:
    repository.change_hosting(image_uri=IMAGE)
    repository.recommend(service_candidate())
    synthesis = repository.synthesise()
    assert synthesis.warnings() == []
    assert {each["Image"] for each in containers(synthesis).values()} == {IMAGE}


def test_a_stack_for_inf1_has_a_note_on_moving_to_inf2(service: Synthesis) -> None:
    """It is information, which `cdk synth --strict` lets pass."""
    (note,) = service.notes("inferentia:legacy")
    assert note.endswith(
        "workload.toml: hosting.target: 'inf1' is for Inf1, which AWS calls legacy: its last images are Neuron 2.20's, "
        'its last driver is 2.24. New projects go to Inf2: build it for inf2 and say hosting.target = "inf2".'
    )


def test_without_a_recommendation_the_warning_names_the_load_test(repository: Repository) -> None:
    repository.change_hosting(image_uri=IMAGE)
    assert repository.synthesise().warnings() == [
        f"{repository.recommendation_file} does not exist: one inf1.6xlarge is deployed, without autoscaling. "
        "Measure with `python -m inference_recommender run query_intent --url URL --instances TYPE`, review the "
        "file and deploy again. [ack: recommendation:missing]"
    ]
