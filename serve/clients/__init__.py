"""The commands' own ways to translations: clients of a running server, and models in this process."""
