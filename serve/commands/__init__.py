"""The commands on the service, one module each: `dragoman serve`, `demo`, `keys`, `glossaries` and `suggestions`.

`state` is what commands on the database share. `health` is the health check of the images. `help` and `errors` write
the `--help` and the error messages of every command of `dragoman`, so they import nothing of the service.
"""
