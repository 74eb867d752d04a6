"""The served models, and the way of a request to one of them.

`loader` opens bundles and loads them with the models of `engine_models`. `registry` holds the served models by name,
each with its `pipeline` while it is in memory, and `description` is what clients see of one. `keeper` loads what
requests need and lets models leave as `eviction` decides; `reloader` follows the served folder. `dispatcher` takes a
request: `route` chooses its model, `glossaries` adds stored terms, `mixed_texts` divides texts by language. `lifecycle`
has the stages of the service.
"""
