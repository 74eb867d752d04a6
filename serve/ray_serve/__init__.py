"""The service as a deployment of Ray Serve, which then brings ports, replicas and their number: the extra `ray`."""
