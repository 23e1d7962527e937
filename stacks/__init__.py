"""CDK: constructs own, stacks compose. Knows the contract and `aws_cdk`; no clock, no environment."""
