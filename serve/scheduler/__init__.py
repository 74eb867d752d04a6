"""Decides which sequences start, and when. Independent of asyncio and of the model.

`sequence` is a source sequence from admission to its last token. `request_scheduler` is what requests call, and refuses
them; `stream_quota` makes streams wait. `scheduler` is the one in Python, with the order of `queue`. `end` counts ended
sequences and calls back.
"""
