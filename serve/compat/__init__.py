"""Interfaces of other servers, so that their clients need only another address.

`deepl` and `libretranslate` answer like those services, `open_inference` like Triton and KServe, over REST and gRPC.
They do not know each other. `served_languages` lists what the models translate in the form that the first two need.
"""
