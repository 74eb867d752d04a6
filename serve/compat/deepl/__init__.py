"""The interface of DeepL for its clients. `docs/compatibility.md` lists the differences.

`http` has the routes and writes errors, `request` the parameters of translations in one table, `languages` the names
and codes. `documents` and `glossaries` use the stores of the service. `documentation` and `stored_documentation`
describe the routes for OpenAPI.
"""
