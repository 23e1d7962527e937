"""Programs that scripts/rehearse.sh runs between its deployments: they ask, compare, change and break."""
