"""What a translation must keep of its text. Pure functions, for one text at a time.

`alignment` has which characters of a translation come from which characters of its text; all else stands on it.
`markup` takes tags out and puts them back in, `placeholders` checks and repairs variables and formatting, `terms` finds
the terms of glossaries and places their translations. `dragoman.serve.translation` calls them.
"""
