"""The page at `/`: a translator in the browser, from files of this package.

`static` has its files, `docs` those of the page of the API documentation. `assets` reads and compresses them once, and
gives them their paths.
"""
