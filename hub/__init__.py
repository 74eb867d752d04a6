"""Models by name: finds, downloads, converts and keeps them, and runs the commands that take names.

`names` decides what a name refers to: the `catalog`, a `repository` of the Hugging Face hub, a package of `argos`, or
files. `connection` and `download` fetch with limits of time and size, `licenses` describes licenses, `convert` makes a
bundle, `store` keeps it by content, and `install` joins these steps. The other modules have commands: `commands`,
`serve_command`, `train_command`, `translate_command`.
"""
