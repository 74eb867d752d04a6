"""The translators of `import dragoman`. They translate in this process, with models by name as for `dragoman serve`.

`aio` has the translator for asyncio, and finds models by name. `blocking` has the one for all other programs.
`dragoman.serve.local` translates.
"""
