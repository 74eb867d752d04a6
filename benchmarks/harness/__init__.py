"""Plans, rounds, processes and reports of benchmarks.

`plan` reads parameters from YAML and `KEY=VALUE`. Each system runs in a `process`, and the systems take turns in
`rounds`, so that other load on the machine affects all alike. `report` keeps the figures of every round and fills
sections of pages.
"""
