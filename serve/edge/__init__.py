"""What every interface needs before and after the service works. Requests are validated here and by `RequestLimits`.

Who may enter: `auth` and `load_shedding`. What clients send: `reader` receives bodies, `body_coding` decompresses them,
`bodies` parses JSON, `form_parser` and `parameters` parse forms, and `value_limit` bounds them. What they get:
`large_answers`, `events` and `problems`. How interfaces describe themselves: `interface`, `route_table` and `schemas`.
"""
