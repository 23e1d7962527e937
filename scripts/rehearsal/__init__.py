"""What `make rehearse` asks and changes between its deployments; scripts/rehearse.sh runs these."""
