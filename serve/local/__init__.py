"""Translation in this process, without interfaces: lists of any length, in chunks, through the dispatcher.

`translator` is the translator, `dispatcher` loads its models, `options` types what callers ask for, and `errors` is the
family of errors, also of the clients of a server.
"""
