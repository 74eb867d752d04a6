"""Benchmarks against other systems; not part of the wheel.

`command` runs the plan of one question: `offline`, `online`, `scheduling`, `service`, `replicas` or `profile`.
`harness` has plans, rounds, processes and reports; `systems` has what is compared. `features` and `rules` measure
single features, `costs` what parts cost, each as a program. `stages` samples where a server spends its time, and
`in_process` the library.
"""
