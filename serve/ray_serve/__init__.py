"""The service as a deployment of Ray Serve, which provides ports and replicas. Requires the extra `ray`."""
