"""The bundle format, the only contract between export and serve. Imports no torch.

`manifest` has the records of `manifest.json`, with `record`, `directions`, `language_codes` and `tokenizer_spec` as
their parts. `files` reads files of unknown origin, `bundle` opens and seals a folder, and `tokenizer` loads the
tokenizer that a manifest names.
"""
