"""Terms of glossaries in sentences and their translations.

`entry` is a term with its translations, `matching` finds the terms of a text, `sentence_terms` finds and places their
translations, and `edit` changes a translation with its alignment. Stored glossaries are in `dragoman.serve.glossaries`.
"""
