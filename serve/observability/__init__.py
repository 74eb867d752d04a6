"""What the service reports to operators: metrics, logs and traces.

`logs` records each request, with the counts and times of `usage`; `log_writer` writes lines without blocking the
server. `metrics` and `request_metrics` are the instruments of service and models, `connections` those of HTTP, on
`histogram` and `batch`. `exposition` writes them, `merged_metrics` joins those of several processes. `traces` sends
spans.
"""
