"""What every interface needs before and after the service works. Requests are validated here, and only here.

Who may ask: `auth`, `load_shedding` with `caller_shares`, `arrivals`. What they send: `reader` receives bodies,
`body_coding` decompresses them, `body_parser`, `form_parser` and `parameters` parse them, `bodies` has their fields,
and `value_limit` bounds them. What they get: `large_answers`, `events`, `problems` and `retry_after`. What interfaces
say of themselves: `interface`, `route_table` and `schemas`.
"""
