"""Placeholders and formatting: what a translation must have in common with its text.

    find        placeholders of programs, addresses and names in a text: `patterns`
    messages    the branches of ICU messages: `icu`
    mark        placeholders and characters of formatting become marks of a block: `marks`
    check       whether a translation has the same placeholders: `check`
    remove      a sentence without its placeholders, as a last attempt: `bare`
    format      letter case and final punctuation as in the text: `formatting`

Depends on no other part of the service but `dragoman.serve.protect.markup` and `dragoman.serve.protect.alignment`.
"""
