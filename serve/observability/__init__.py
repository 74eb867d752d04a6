"""What the service reports to operators: metrics, logs and traces.

`logs` records each request, with the counts and times of `usage`; `log_writer` writes lines without blocking the
server. `metrics` and `request_metrics` count for service and models, with the `instruments` of a table and in a
`batch`. `exposition` writes them, `merged_metrics` joins those of several processes. `traces` sends spans.
"""
