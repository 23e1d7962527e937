"""The processes of the account: Triton, a guard that ends what it started, and the account itself as a child."""
