"""Documents over REST, for the interfaces of this and of other servers.

`http` has the routes, `parts` what the compatible interfaces share, `documentation` the descriptions. `translator`
translates the texts of a document, `background` runs the queue of jobs, and `result` sends a translated file. The
formats are in `dragoman.serve.documents`.
"""
