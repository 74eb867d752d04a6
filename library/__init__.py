"""What `import dragoman` gives: translators of this process, whose models have names as for `dragoman serve`.

`aio` is the translator for asyncio, and finds models by name; `blocking` is the one for all other programs.
`dragoman.serve.local` translates.
"""
