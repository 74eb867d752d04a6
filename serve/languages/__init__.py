"""Languages, independent of protocols and models.

`names` has their English names and codes, `detector` finds the language of a text among candidates.
"""
