"""Everything that runs inside a container. Imports only what its container has, and nothing of ours."""
