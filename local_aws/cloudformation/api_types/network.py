"""Types of networks, security groups and load balancers. moto keeps them; no packet goes through."""

from collections.abc import Callable
from typing import Any

from local_aws.cloudformation.api_type import Also, ApiType, Known, Properties

_TO_ANYWHERE = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]


def _tags(value: Any, known: Known) -> Known:
    return {"Resources": list(known.values()), "Tags": value}


def _attribute(name: str) -> Callable[[Any, Known], Known]:
    return lambda value, known: {**known, name: {"Value": value in (True, "true")}}


def _permission(rule: Properties) -> Properties:
    """Turns a template's rule into the API's IpPermission."""
    made: Properties = {"IpProtocol": str(rule["IpProtocol"])}
    made |= {key: int(rule[key]) for key in ("FromPort", "ToPort") if key in rule}
    about = {"Description": rule["Description"]} if "Description" in rule else {}
    if "CidrIp" in rule:
        made["IpRanges"] = [{"CidrIp": rule["CidrIp"], **about}]
    if "CidrIpv6" in rule:
        made["Ipv6Ranges"] = [{"CidrIpv6": rule["CidrIpv6"], **about}]
    if group := rule.get("SourceSecurityGroupId") or rule.get("DestinationSecurityGroupId"):
        made["UserIdGroupPairs"] = [{"GroupId": group, **about}]
    if prefix := rule.get("SourcePrefixListId") or rule.get("DestinationPrefixListId"):
        made["PrefixListIds"] = [{"PrefixListId": prefix, **about}]
    return made


def _permissions(value: Any, known: Known) -> Known:
    return {**known, "IpPermissions": [_permission(rule) for rule in value]}


def _single_rule(properties: Properties, _region: str) -> Properties:
    return {"GroupId": properties["GroupId"], "IpPermissions": [_permission(properties)]}


def _flow_log(properties: Properties, _region: str) -> Properties:
    """Renames ResourceId: the API makes several flow logs at once."""
    return {("ResourceIds" if key == "ResourceId" else key): value for key, value in properties.items()}


def _attributes(value: Any, known: Known) -> Known:
    return {**known, "Attributes": value}


def _after(word: str, path: str) -> Callable[[Properties], str]:
    """Returns a function that reads the part of an ARN after `word`."""

    def read(call: Properties) -> str:
        (only,) = call["answer"][path]
        arn: str = only[f"{path[:-1]}Arn"]
        return arn.partition(word)[2]

    return read


NETWORK = (
    ApiType(
        name="AWS::EC2::VPC",
        service="ec2",
        create="CreateVpc",
        delete="DeleteVpc",
        ref="answer.Vpc.VpcId",
        attributes={"VpcId": "answer.Vpc.VpcId", "CidrBlock": "answer.Vpc.CidrBlock"},
        keys={"VpcId": "answer.Vpc.VpcId"},
        also=(
            Also("EnableDnsSupport", "ModifyVpcAttribute", _attribute("EnableDnsSupport")),
            Also("EnableDnsHostnames", "ModifyVpcAttribute", _attribute("EnableDnsHostnames")),
            Also("Tags", "CreateTags", _tags),
        ),
    ),
    ApiType(
        name="AWS::EC2::Subnet",
        service="ec2",
        create="CreateSubnet",
        delete="DeleteSubnet",
        ref="answer.Subnet.SubnetId",
        attributes={
            "SubnetId": "answer.Subnet.SubnetId",
            "AvailabilityZone": "answer.Subnet.AvailabilityZone",
            "VpcId": "answer.Subnet.VpcId",
            "CidrBlock": "answer.Subnet.CidrBlock",
        },
        keys={"SubnetId": "answer.Subnet.SubnetId"},
        also=(
            Also("MapPublicIpOnLaunch", "ModifySubnetAttribute", _attribute("MapPublicIpOnLaunch")),
            Also("Tags", "CreateTags", _tags),
        ),
    ),
    ApiType(
        name="AWS::EC2::RouteTable",
        service="ec2",
        create="CreateRouteTable",
        delete="DeleteRouteTable",
        ref="answer.RouteTable.RouteTableId",
        attributes={"RouteTableId": "answer.RouteTable.RouteTableId"},
        keys={"RouteTableId": "answer.RouteTable.RouteTableId"},
        also=(Also("Tags", "CreateTags", _tags),),
    ),
    ApiType(
        name="AWS::EC2::SubnetRouteTableAssociation",
        service="ec2",
        create="AssociateRouteTable",
        delete="DisassociateRouteTable",
        ref="answer.AssociationId",
        attributes={"Id": "answer.AssociationId"},
        keys={"AssociationId": "answer.AssociationId"},
    ),
    ApiType(
        name="AWS::EC2::SecurityGroup",
        service="ec2",
        create="CreateSecurityGroup",
        delete="DeleteSecurityGroup",
        ref="answer.GroupId",
        attributes={"GroupId": "answer.GroupId", "Id": "answer.GroupId", "VpcId": "request.VpcId"},
        keys={"GroupId": "answer.GroupId"},
        named_by="GroupName",
        renames={"GroupDescription": "Description"},
        also=(
            # The group's own rules replace the rule that every new group has.
            Also(
                "SecurityGroupEgress",
                "RevokeSecurityGroupEgress",
                lambda _, known: {**known, "IpPermissions": _TO_ANYWHERE},
            ),
            Also("SecurityGroupEgress", "AuthorizeSecurityGroupEgress", _permissions),
            Also("SecurityGroupIngress", "AuthorizeSecurityGroupIngress", _permissions),
            Also("Tags", "CreateTags", _tags),
        ),
    ),
    *(
        ApiType(
            name=f"AWS::EC2::SecurityGroup{way}",
            service="ec2",
            create=f"AuthorizeSecurityGroup{way}",
            delete=f"RevokeSecurityGroup{way}",
            ref="answer.SecurityGroupRules[0].SecurityGroupRuleId",
            attributes={"Id": "answer.SecurityGroupRules[0].SecurityGroupRuleId"},
            keys={"GroupId": "request.GroupId", "IpPermissions": "request.IpPermissions"},
            prepare=_single_rule,
        )
        for way in ("Ingress", "Egress")
    ),
    ApiType(
        name="AWS::EC2::FlowLog",
        service="ec2",
        create="CreateFlowLogs",
        delete="DeleteFlowLogs",
        ref="answer.FlowLogIds[0]",
        attributes={"Id": "answer.FlowLogIds[0]"},
        keys={"FlowLogIds": "answer.FlowLogIds"},
        prepare=_flow_log,
        also=(Also("Tags", "CreateTags", lambda value, known: {"Resources": known["FlowLogIds"], "Tags": value}),),
    ),
    ApiType(
        name="AWS::EC2::VPCEndpoint",
        service="ec2",
        create="CreateVpcEndpoint",
        delete="DeleteVpcEndpoints",
        ref="answer.VpcEndpoint.VpcEndpointId",
        attributes={"Id": "answer.VpcEndpoint.VpcEndpointId"},
        keys={"VpcEndpointIds": "[answer.VpcEndpoint.VpcEndpointId]"},
        also=(Also("Tags", "CreateTags", lambda value, known: {"Resources": known["VpcEndpointIds"], "Tags": value}),),
    ),
    ApiType(
        name="AWS::ElasticLoadBalancingV2::LoadBalancer",
        service="elbv2",
        create="CreateLoadBalancer",
        update="SetSecurityGroups",
        delete="DeleteLoadBalancer",
        ref="answer.LoadBalancers[0].LoadBalancerArn",
        attributes={
            "LoadBalancerArn": "answer.LoadBalancers[0].LoadBalancerArn",
            "DNSName": "answer.LoadBalancers[0].DNSName",
            "CanonicalHostedZoneID": "answer.LoadBalancers[0].CanonicalHostedZoneId",
            "LoadBalancerName": "answer.LoadBalancers[0].LoadBalancerName",
            "LoadBalancerFullName": _after("loadbalancer/", "LoadBalancers"),
        },
        keys={"LoadBalancerArn": "answer.LoadBalancers[0].LoadBalancerArn"},
        named_by="Name",
        also=(Also("LoadBalancerAttributes", "ModifyLoadBalancerAttributes", _attributes),),
    ),
    ApiType(
        name="AWS::ElasticLoadBalancingV2::TargetGroup",
        service="elbv2",
        create="CreateTargetGroup",
        update="ModifyTargetGroup",
        delete="DeleteTargetGroup",
        ref="answer.TargetGroups[0].TargetGroupArn",
        attributes={
            "TargetGroupArn": "answer.TargetGroups[0].TargetGroupArn",
            "TargetGroupName": "answer.TargetGroups[0].TargetGroupName",
            # CloudWatch's dimension wants the first word, too.
            "TargetGroupFullName": lambda call: "targetgroup/" + _after("targetgroup/", "TargetGroups")(call),
        },
        keys={"TargetGroupArn": "answer.TargetGroups[0].TargetGroupArn"},
        named_by="Name",
        also=(Also("TargetGroupAttributes", "ModifyTargetGroupAttributes", _attributes),),
    ),
    ApiType(
        name="AWS::ElasticLoadBalancingV2::Listener",
        service="elbv2",
        create="CreateListener",
        update="ModifyListener",
        delete="DeleteListener",
        ref="answer.Listeners[0].ListenerArn",
        attributes={"ListenerArn": "answer.Listeners[0].ListenerArn"},
        keys={"ListenerArn": "answer.Listeners[0].ListenerArn"},
        also=(Also("ListenerAttributes", "ModifyListenerAttributes", _attributes),),
    ),
)
