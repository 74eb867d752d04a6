"""The REST interface, and the routes of all interfaces on one port.

`api` puts them behind `recorder`, which guards and records every request; `routes` calls handlers.
`texts`, `models`, `glossaries`, `keys` and `probes` have the own routes, and `interface` their errors. `description`,
`documentation` and `openapi` write the OpenAPI document. `cross_site` refuses what pages of other sites let a browser
send.
"""
