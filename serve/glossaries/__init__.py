"""Glossaries: terms and the translations that they must have.

    entry       a term with its translations, and its limits: `entry`
    match       the terms of a text: `matching`
    files       entries as TSV, CSV and TBX: `files`, `tbx`
    store       glossaries that outlive the process: `store`

Depends on no other part of the service but `serve.host.state` and `serve.protect.alignment`.
"""
