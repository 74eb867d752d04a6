"""Benchmarks against other systems; not part of the wheel.

`command` runs the plan of one question: `offline`, `online`, `service`, `profile` or `memories`.
`harness` runs plans in rounds and reports them. `systems` are the engines that it compares. `features` measure single
features, `costs` what kernels cost, each as a program.
"""
