"""API keys with limits, and the count of what each key has used. `docs/keys.md` describes them.

`key` is a key without its secret, and what it may use. `ring` finds the key of a request, among those of `store`,
the database, too. `accounts` holds an `account` for each key, and `usage` counts for all processes together.
"""
