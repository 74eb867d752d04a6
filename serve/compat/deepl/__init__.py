"""The interface of DeepL for its clients. `docs/compatibility.md` lists the differences.

`http` has the routes, describes them for OpenAPI and writes errors, `request` has the parameters of translations, and
`languages` the names and codes. `documents` and `glossaries` use the stores of the service.
"""
