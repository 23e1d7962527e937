"""What starts by the clock, and the steps it takes. moto keeps both and runs neither."""

from local_aws.cloudformation.api_type import ApiType

BATCH = (
    ApiType(
        name="AWS::Scheduler::ScheduleGroup",
        service="scheduler",
        create="CreateScheduleGroup",
        delete="DeleteScheduleGroup",
        ref="request.Name",
        attributes={"Arn": "answer.ScheduleGroupArn"},
        keys={"Name": "request.Name"},
        named_by="Name",
    ),
    ApiType(
        name="AWS::Scheduler::Schedule",
        service="scheduler",
        create="CreateSchedule",
        update="UpdateSchedule",
        delete="DeleteSchedule",
        ref="request.Name",
        attributes={"Arn": "answer.ScheduleArn"},
        keys={"Name": "request.Name", "GroupName": "request.GroupName"},
        named_by="Name",
    ),
    ApiType(
        name="AWS::StepFunctions::StateMachine",
        service="stepfunctions",
        create="CreateStateMachine",
        update="UpdateStateMachine",
        delete="DeleteStateMachine",
        ref="answer.stateMachineArn",
        attributes={"Arn": "answer.stateMachineArn", "Name": "request.name"},
        keys={"stateMachineArn": "answer.stateMachineArn"},
        named_by="StateMachineName",
        renames={"StateMachineName": "name", "DefinitionString": "definition", "StateMachineType": "type"},
    ),
)
