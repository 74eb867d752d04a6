"""Reads the glossary files of clients in the sandbox."""

from dragoman.serve.glossaries.files import EntriesFormat
from dragoman.serve.glossaries.parsers import READ
from dragoman.serve.protect.terms.entry import Entry, EntryError
from dragoman.serve.sandbox.frames import Item
from dragoman.serve.sandbox.sandbox import Sandbox
from dragoman.serve.sandbox.worker import MEBIBYTE, Limits, Refusal

# The most entries of the longest terms are one part of the memory, the text is the other.
_BASE_BYTES = 28 * MEBIBYTE
_MEMORY_PER_BYTE = 8
_BASE_SECONDS = 5
# An entry repeats no text of the file more than that, also in TBX, where the terms of a concept share their targets.
_OUTPUT_BYTES = 24 * MEBIBYTE


class GlossaryReader:
    """Reads glossary files outside of this process."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def read(
        self,
        text: str,
        entries_format: EntriesFormat,
        source_language: str,
        target_language: str,
        deadline_seconds: float,
        *,
        first_targets: bool = False,
    ) -> tuple[Entry, ...]:
        """Returns the entries of a file, as `dragoman.serve.glossaries.files.read_entries` does.

        Args:
            source_language, target_language: ISO 639-1 codes.
            deadline_seconds: on the clock of `time.monotonic`.
            first_targets: whether further columns, such as languages, are no forms of the translation.

        Raises:
            EntryError: naming the first invalid entry.
            ServiceError: if the file exceeds a limit, or cannot be read now.
        """
        data = text.encode("utf-8", "surrogatepass")
        limits = Limits.of_input(
            len(data),
            memory_bytes=_BASE_BYTES + _MEMORY_PER_BYTE * len(data),
            output_bytes=_OUTPUT_BYTES,
            base_seconds=_BASE_SECONDS,
        )
        items = (entries_format, source_language, target_language, first_targets, data)
        try:
            found = await self._sandbox.call(
                READ, items, purpose="glossaries", limits=limits, convert=_entry, deadline_seconds=deadline_seconds
            )
        except Refusal as refusal:
            index, problem = refusal.args
            raise EntryError(index, problem) from refusal
        return tuple(found)


def _entry(item: Item) -> Entry:
    source, targets = item
    return Entry(source, tuple(targets))
