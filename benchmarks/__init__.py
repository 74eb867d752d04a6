"""Benchmarks against other systems; not part of the wheel.

`command` runs the plan of one question: `offline`, `service`, `translate`, `profile` or `memories`. `measurements` runs
all that pages state, and fills in their tables.
`harness` runs plans in rounds and reports them. `systems` are the engines that it compares. `features` measure single
features, `costs` what kernels cost, each as a program.
"""
