"""Reads the Ding dictionary: `German | other forms :: English | other forms`, each with synonyms after semicolons."""

import re

from dragoman.model.data.sources.readers.messages import CONTEXT_END, Messages

# Grammar, fields of knowledge and remarks: {f}, [med.], /abbr./, <synonym>, (remark).
_REMARKS = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]|/[^/]*/|<[^<>]*>|\([^()]*\)|\b(?:jd?[nm]?\.|etw\.|sb\.|sth\.)")


def read_dictionary(content: bytes) -> Messages:
    """Returns the German word of each English one, the first of its synonyms. A key begins with its line."""
    messages: Messages = {}
    for number, line in enumerate(content.decode().splitlines()):
        german, mark, english = line.partition("::")
        sides = [side.split("|") for side in (german, english)]
        if line.startswith("#") or not mark or len(sides[0]) != len(sides[1]):
            continue
        for place, (word, translation) in enumerate(zip(*sides, strict=True)):
            first, second = _first(word), _first(translation)
            if first and second:
                messages[f"{number // 1000}|{number}/{place}{CONTEXT_END}{second}"] = first
    return messages


def _first(synonyms: str) -> str:
    """Returns the first synonym without remarks."""
    return " ".join(_REMARKS.sub(" ", synonyms.partition(";")[0]).split()).strip(" ,")
