"""moto's CloudFormation with changes that run, roll back and make every resource type of our stacks."""
