"""Fault injection and endurance under load.

`chaos` runs rounds of load with one fault each, such as a stalled or killed replica; `soak` runs for hours and then
reconciles the counts of clients and server. `replicas` starts the servers.
"""
