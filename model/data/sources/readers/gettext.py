"""Reads gettext catalogs, .mo and .po. The key of a text is its context, a mark and its English message."""

import polib

from dragoman.model.data.sources.readers.messages import CONTEXT_END, Messages


def read_mo(content: bytes) -> Messages:
    """Returns the translations of a compiled catalog."""
    return _messages(polib.mofile(content))


def read_po(content: bytes) -> Messages:
    """Returns the translations of a catalog, without those that are obsolete or fuzzy."""
    return _messages(polib.pofile(content.decode("utf-8-sig")))


def _messages(catalog: polib.MOFile | polib.POFile) -> Messages:
    messages: Messages = {}
    for entry in catalog.translated_entries():
        context = f"{entry.msgctxt or ''}{CONTEXT_END}"
        if entry.msgid_plural:
            # The first form belongs to one, the last to many, in German, French and Czech.
            messages[f"{context}{entry.msgid}"] = entry.msgstr_plural[min(entry.msgstr_plural)]
            messages[f"{context}{entry.msgid_plural}"] = entry.msgstr_plural[max(entry.msgstr_plural)]
        elif entry.msgid:
            messages[f"{context}{entry.msgid}"] = entry.msgstr
    return messages
