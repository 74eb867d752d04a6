"""Several processes that serve the same ports: forks, watches, replaces and stops them, and joins what they report.

The supervisor serves nothing itself. It has no engine, no gRPC and no thread but that of the log, so that it can fork.
"""
