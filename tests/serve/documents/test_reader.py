"""The segments of documents that were parsed in another process."""

import pytest

from dragoman.serve.documents.document import DocumentRequest
from dragoman.serve.documents.job import JobLimits
from dragoman.serve.documents.reader import DocumentReader
from tests.support.sandboxes import open_sandbox

pytestmark = pytest.mark.anyio
LIMITS = JobLimits(document_bytes=1 << 20, unpacked_bytes=1 << 20, jobs=1, store_bytes=1 << 20, keep_seconds=60.0)


async def test_segments_share_the_name_of_their_format() -> None:
    async with open_sandbox() as sandbox:
        reader = DocumentReader(sandbox, LIMITS)
        read = await reader.parse("a.html", b"<p>A <b>dog</b></p><p>Two <b>dogs</b></p>", DocumentRequest())
    assert [segment.format for segment in read.segments] == ["xml", "xml"]
    assert read.segments[0].format is read.segments[1].format
