"""Markup: takes the sentences out of HTML and XML, and puts their translations and tags back in.

    scan        a document becomes tokens with exact positions: `html`, `xml`
    pair        tags become elements: `elements`
    extract     text between block tags becomes plain text with marks: `blocks`
    sentences   a sentence gets the tags inside it: `sentences`
    place       each tag gets its characters of the translation by alignment: `placement`
    write       the translation of a sentence with its tags: `tags`

Everything that is not text keeps its characters. Each tag of the source occurs once in the result, inside the same
tags as before. Depends on no other part of the service but `dragoman.serve.protect.alignment`.
"""
