"""Decides which sequences start, and when. Independent of asyncio and of the model.

`sequence` is a source sequence from admission to its last token. `request_scheduler` is what requests call: `admission`
reserves rows, `deadline_refusal` refuses what would be late, and `stream_quota` makes streams wait. `scheduler` is the
one in Python, with the order of `queue` and the `end` of sequences.
"""
