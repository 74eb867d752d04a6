"""The commands on the service, one module each, such as `dragoman serve`, `demo`, `keys` and `memory`.

`state` is what commands on the database share. `health` is the health check of the images. `help` and `errors` write
the `--help` and the error messages of every command of `dragoman`, so they import nothing of the service.
"""
