"""Translations that tests recognize."""

import re

from dragoman.serve.documents.document import Segment


def in_capitals(segment: Segment) -> str:
    """Returns a segment in capitals; its tags and what is inside of `<k>` stay."""
    if segment.format == "text":
        return segment.text.upper()
    return re.sub("(<k .*?</k>|<[^>]*>|&[a-z]+;)|.", lambda found: found[1] or found[0].upper(), segment.text)
