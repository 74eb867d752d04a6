"""The interface of LibreTranslate for its clients. `docs/compatibility.md` lists the differences.

`http` has the routes and writes errors, `request` the parameters with the checks and error texts that clients expect.
`files` uses the document jobs of the service, `suggestions` stores translations that clients propose, and
`documentation` describes the routes for OpenAPI.
"""
