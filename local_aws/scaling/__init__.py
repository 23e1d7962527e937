"""Application Auto Scaling of this account's endpoints: policies are acted on, and servers start and stop for them."""
