#!/usr/bin/env bash
# take_down.sh STACK...: deletes stacks and waits until they are gone. A stack that does not exist is none to delete.
# Beta's servers cost by the hour and are asked while a release runs; the next release makes them anew.
source "$(dirname "$0")/common.bash"
takes 1 "STACK..." "$@"
deleted=()
for stack in "$@"; do
  if said=$(aws cloudformation describe-stacks --stack-name "$stack" --query 'Stacks[0].StackStatus' --output text 2>&1); then
    aws cloudformation delete-stack --stack-name "$stack" \
      || refuse 3 "$stack could not be deleted, for the reason above, and costs by the hour: delete it by hand."
    deleted+=("$stack")
  else
    [[ $said == *"does not exist"* ]] || refuse 3 "$said
Whether there is a stack $stack, which costs by the hour, could not be asked."
  fi
done
for stack in "${deleted[@]}"; do
  aws cloudformation wait stack-delete-complete --stack-name "$stack" \
    || refuse 3 "$stack is not deleted. Its events say why: aws cloudformation describe-stack-events --stack-name $stack"
  echo "$stack is deleted."
done
