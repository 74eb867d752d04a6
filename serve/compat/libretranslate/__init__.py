"""The interface of LibreTranslate for its clients. `docs/compatibility.md` lists the differences.

`http` has the routes, describes them for OpenAPI and writes errors. `request` has the parameters, with the checks and
error texts that clients expect. `files` uses the document jobs of the service.
"""
