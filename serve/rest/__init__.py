"""The REST interface, and the composition of all routes on one port.

`api` has the routes of translation and the middleware around every request, `routes` calls handlers with `headers`.
`glossaries` and `keys` are routes of their own. `description`, `documentation` and `openapi` write the OpenAPI
document. `cross_site` refuses what pages of other sites let a browser send.
"""
