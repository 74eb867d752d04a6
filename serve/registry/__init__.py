"""The served models, and the way of a request to one of them.

`loader` makes a `pipeline` of each bundle, with the models of `engine_models`; `registry` holds them by name,
`reloader` replaces them, and `uses` lets a replaced one finish. `dispatcher` takes a request: `route` chooses its
model, `glossaries` adds stored terms, `mixed_texts` and `detected` divide texts by language. `lifecycle` has the stages
of the service, `lame_duck` the one before the end.
"""
