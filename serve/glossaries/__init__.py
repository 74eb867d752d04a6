"""Glossaries: terms and the translations that they must have.

    files       entries as TSV, CSV and TBX: `files`, `tbx`
    read        files of clients, parsed in the sandbox: `reader`, `parsers`
    store       glossaries that outlive the process: `store`
    match       the indexes of dictionaries that are in use: `index_cache`

`dragoman.serve.protect.terms` has their entries, and finds them in texts.
"""
