"""API keys with limits, and the count of what each key has used. `docs/keys.md` describes them."""
