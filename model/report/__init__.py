"""The report on kinds of attention: pictures, tables and figures of `docs/attention.md`."""
