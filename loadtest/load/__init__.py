"""`dragoman load`: load on a running server, and reports of what users would have felt."""
