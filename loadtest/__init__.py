"""Load generation: open-loop and closed-loop load on a server, and reports of the results.

A `scenario` describes a load as data; `plan` draws every request and its send time from it, `generator` sends them
from processes of its own through `clients` and `protocols`, and `measurement` runs one plan. `session` runs many and
searches capacity. `samples` become `results`, `tables` and a `report`. `self_test` proves that no delay is hidden.
`reliability` injects faults.
"""
