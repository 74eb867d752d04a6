"""The service as a deployment of Ray Serve, which provides ports and replicas. Requires the extra `ray`.

`application` is what `serve run` builds, `replica` a service without ports, `proxy_methods` the gRPC methods that the
proxy forwards as bytes, and `settings` the settings of a deployment.
"""
