#!/usr/bin/env bash
# take_down.sh STACK...: deletes stacks and waits until they are gone. A stack that does not exist is none to delete.
# Beta's servers cost by the hour and are asked while a release runs; the next release makes them anew.
source "$(dirname "$0")/common.bash"
takes 1 "STACK..." "$@"
deleted=()

# free_instances STACK: deletes the hook by which ECS drains the instances of a group. CloudFormation deletes the capacity
# provider first, and then nothing completes the hook: each instance would wait for its heartbeat, an hour.
free_instances() {
  local groups group said
  groups=$(aws cloudformation describe-stack-resources --stack-name "$1" --output text \
    --query "StackResources[?ResourceType=='AWS::AutoScaling::AutoScalingGroup'].PhysicalResourceId") \
    || refuse 3 "The resources of $1 could not be read, for the reason above."
  for group in $groups; do
    said=$(aws autoscaling delete-lifecycle-hook --auto-scaling-group-name "$group" \
      --lifecycle-hook-name ecs-managed-draining-termination-hook 2>&1) || [[ $said == *ValidationError* ]] \
      || refuse 3 "$said"
  done
}

for stack in "$@"; do
  if said=$(aws cloudformation describe-stacks --stack-name "$stack" --query 'Stacks[0].StackStatus' --output text 2>&1); then
    free_instances "$stack"
    aws cloudformation delete-stack --stack-name "$stack" \
      || refuse 3 "$stack could not be deleted, for the reason above, and costs by the hour: delete it by hand."
    deleted+=("$stack")
  else
    [[ $said == *"does not exist"* ]] || refuse 3 "$said
Whether there is a stack $stack, which costs by the hour, could not be asked."
  fi
done
for stack in "${deleted[@]}"; do
  # The AWS CLI waits an hour at most.
  aws cloudformation wait stack-delete-complete --stack-name "$stack" \
    || aws cloudformation wait stack-delete-complete --stack-name "$stack" \
    || refuse 3 "$stack is not deleted. Its events say why: aws cloudformation describe-stack-events --stack-name $stack"
  echo "$stack is deleted."
done
