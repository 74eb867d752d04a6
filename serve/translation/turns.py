"""Work on texts in the event loop, in turns that are short enough for everybody else in it.

Called by whatever goes through the texts of a request before anything waits.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable

from serve.translation.request import TextRequest

# A text of this length takes well under a millisecond: the event loop looks at other requests about that often, and a
# hop to another thread, which costs more than a usual sentence, is never needed.
CHARACTERS_PER_TURN = 10_000


async def in_turns(texts: Iterable[TextRequest]) -> AsyncIterator[TextRequest]:
    """Yields the texts, and lets others have their turn whenever enough was done."""
    characters = 0
    for text in texts:
        yield text
        characters += len(text.text) + len(text.target_prefix)
        if characters >= CHARACTERS_PER_TURN:
            characters = 0
            await asyncio.sleep(0)
