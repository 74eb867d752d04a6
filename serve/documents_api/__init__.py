"""Documents over REST, for the interfaces of this and of other servers.

`http` has the routes and their descriptions. `translator` translates the texts of a document, and `result` sends a
translated file. The formats are in `dragoman.serve.documents`.
"""
