"""The answer with a translated document: pieces of its file, each after the client has read the one before.

A client that does not read thus costs the memory of a piece.
"""

from urllib.parse import quote

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from dragoman.serve.documents.job import TranslatedDocument
from dragoman.serve.host.threads import DOCUMENTS
from dragoman.serve.http.connection import FLOW, TRANSPORT

PIECE_BYTES = 128 << 10


class DocumentAnswer(Response):
    """Sends a translated document and closes its file."""

    def __init__(self, document: TranslatedDocument) -> None:
        headers = {
            "content-disposition": f"attachment; filename*=UTF-8''{quote(document.name, safe='')}",
            "content-length": str(document.size_bytes),
            "x-content-type-options": "nosniff",
        }
        super().__init__(headers=headers, media_type="application/octet-stream")
        self._document = document

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - defined by ASGI
        """Sends the file, or its part until the client goes away."""
        state, left_bytes = scope.get("state", {}), self._document.size_bytes
        with self._document.file as file:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while True:
                piece = await DOCUMENTS.run(file.read, PIECE_BYTES)
                left_bytes -= len(piece)
                more = bool(piece) and left_bytes > 0
                await send({"type": "http.response.body", "body": piece, "more_body": more})
                if not more:
                    return
                if FLOW in state:
                    await state[FLOW].drain()
                    if state[TRANSPORT].is_closing():
                        return
