"""Programs that measure what single parts cost, each as `python -m benchmarks.costs.NAME`.

`command` measures `dragoman translate`, `processes` the processes of a server, `kernels` 8-bit products.
"""
