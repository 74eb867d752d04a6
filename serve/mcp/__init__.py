"""Tools for assistants over the Model Context Protocol: `dragoman mcp`, a client of a running server.

`tools` has the tools, `folder` the files that they may use, `http` the checks of the transport over HTTP, and `command`
the command.
"""
