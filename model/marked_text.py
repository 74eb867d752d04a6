"""Text with marked places that a command fills in, so that figures in a document are those that were measured.

A place named table lies between `<!-- table -->` and `<!-- /table -->`. Knows nothing of what is filled in.
"""


class MarkError(Exception):
    """A text has not exactly one place of a name."""


def fill(text: str, name: str, content: str) -> str:
    """Returns the text with the content, in lines of its own, in a place; whatever was there before is gone.

    Raises:
        MarkError: if the text does not have exactly one such place.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    if text.count(begin) != 1 or text.count(end) != 1 or end not in rest:
        raise MarkError(f"expected {begin} and, behind it, {end}, each once")
    return f"{before}{begin}\n\n{content.strip()}\n\n{end}{after}"
