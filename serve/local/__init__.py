"""Translation in this process, without interfaces: lists of any length, in chunks, through the dispatcher.

`translator` has the translator, and `dispatcher` loads its models. `options` has the types of arguments, and `errors`
the exceptions, also those of the clients of a server.
"""
