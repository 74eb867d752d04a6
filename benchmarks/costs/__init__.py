"""Programs that measure what single parts cost, each as `python -m benchmarks.costs.NAME`.

`requests` and `lone_requests` measure a request, `processes` the processes of a server, `kernels` 8-bit products.
"""
