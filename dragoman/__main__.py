"""Runs the command line: `python -m dragoman`."""

from dragoman.command_line import main

if __name__ == "__main__":
    main()
