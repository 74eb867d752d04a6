"""Training: the step, its loss, the trainer, and the commands `dragoman train` and `dragoman plan`.

`train` is the command, `trainer` Lightning's trainer with its callbacks, `module` the step and the data, `loss` the
loss and the schedules. `initial` starts from another model, and `before` keeps what that translates. `inputs` keeps a
resumed run from other data. `logs` and `curves` read and draw what was logged; `plan` trains many variants.
"""
