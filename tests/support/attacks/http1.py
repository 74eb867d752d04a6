"""Attacks over HTTP/1.1, one function per family: what one client does on one connection.

Each function returns when the client has done what it wanted, or raises `EndedError` when the server ends the
connection.
"""

import gzip
import json
import ssl
from itertools import cycle

from tests.support.attacks.glossaries import Bomb, glossary_bombs
from tests.support.attacks.link import Link

DRIP_SECONDS = 1.0
HOUR_MS = 3_600_000
GLOSSARY_BYTES = 400_000
JSON = "content-type: application/json"


def head(method: str, path: str, *fields: str) -> bytes:
    """Returns a request line and header fields, complete."""
    return "\r\n".join((f"{method} {path} HTTP/1.1", "host: attacker", *fields, "", "")).encode()


def post(body: object, path: str = "/v1/translate", *fields: str) -> bytes:
    """Returns a request with a JSON body; a body of bytes is sent as it is."""
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return head("POST", path, JSON, f"content-length: {len(data)}", *fields) + data


# Every character of it normalizes to 18; the body has 1.9 MB.
LONG_CHARACTERS = post({"text": ["\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}" * 10_000] * 64})
MANY_SENTENCES = post({"text": ["a\n" * 5_000] * 64})
NESTED_JSON = post(b'{"text":[' + b"[]," * 660_000 + b"[]]}")
# Grows to 2 MiB, of which the parser reads everything.
BOMB = post(gzip.compress(b'{"text":"a"' + b" " * (2_097_152 - 12) + b"}"), "/v1/translate", "content-encoding: gzip")
# The same on routes that need no engine: LibreTranslate's, and DeepL's, which read a body before the key.
WAITING_BOMBS = [
    post(gzip.compress(b'{"q":"a"' + b" " * (2_097_152 - 9) + b"}"), path, "content-encoding: gzip")
    for path in ("/detect", "/v2/glossaries")
]
# Large answers to few sentences: gaps come back.
GAPS = "A dog." + "\n" * 9_990
BEGUN_BODY = head("POST", "/v1/translate", JSON, "content-length: 100", f"x-request-timeout-ms: {HOUR_MS}") + b"{"
ENDLESS_HEAD = b"GET /healthz HTTP/1.1\r\nhost: attacker\r\nx-a: "


async def idle(link: Link) -> None:
    """Sends nothing."""
    await link.hold()


async def idle_after_answer(link: Link) -> None:
    """Sends one request, then nothing."""
    await link.send(head("GET", "/healthz"))
    await link.hold()


async def open_and_close(link: Link) -> None:
    """Sends one request and closes the connection after 10 ms."""
    await link.send(head("GET", "/healthz"))
    await link.pause(0.01)


async def half_header(link: Link) -> None:
    """Sends a part of a header, then nothing."""
    await link.send(ENDLESS_HEAD)
    await link.hold()


async def slow_header(link: Link) -> None:
    """Sends a header, one byte per second."""
    await link.send(ENDLESS_HEAD)
    await _drip(link)


async def missing_body(link: Link) -> None:
    """Sends a header with the longest deadline and the first byte of its body, then nothing."""
    await link.send(BEGUN_BODY)
    await _drip(link, b"")


async def slow_body(link: Link) -> None:
    """Sends a body, one byte per second."""
    await link.send(BEGUN_BODY)
    await _drip(link)


async def slow_chunks(link: Link) -> None:
    """Sends a chunked body, one chunk of one byte per second."""
    await link.send(head("POST", "/v1/translate", JSON, "transfer-encoding: chunked") + b'1\r\n"\r\n')
    await _drip(link, b"1\r\na\r\n")


async def _drip(link: Link, piece: bytes = b"a") -> None:
    """Repeats a piece until the server answers."""
    while not link.answers.received:
        await link.pause(DRIP_SECONDS)
        await link.send(piece)


async def large_answers(link: Link) -> None:
    """Pipelines requests with large answers; for clients that never read."""
    await link.send((head("GET", "/openapi.json") + post({"text": [GAPS]})) * 8)
    await link.hold()


async def events(link: Link) -> None:
    """Opens an event stream with large events; for clients that never read."""
    await link.send(post({"text": [GAPS] * 8}, "/v1/translate/stream"))
    await link.hold()


async def pipelined(link: Link) -> None:
    """Sends requests without waiting for answers, as fast as the server takes them."""
    while True:
        await link.send(head("GET", "/readyz") * 100)


async def refused(link: Link) -> None:
    """Pipelines invalid requests, each of which is worth a line of the log."""
    while True:
        await link.send((post({"text": ""}) + post(b"{") + head("GET", "/nowhere")) * 30)


async def long_characters(link: Link) -> None:
    """Sends texts that grow when they are normalized."""
    await _ask(link, LONG_CHARACTERS)


async def many_sentences(link: Link) -> None:
    """Sends texts with more sentences than fit."""
    await _ask(link, MANY_SENTENCES)


async def nested_json(link: Link) -> None:
    """Sends 2 MB of empty lists."""
    await _ask(link, NESTED_JSON)


async def bombs(link: Link) -> None:
    """Sends bodies that grow to the limit when they are decompressed."""
    await _ask(link, BOMB)


async def waiting_bombs(link: Link) -> None:
    """Sends such bodies to routes that need no engine."""
    await _ask(link, *WAITING_BOMBS)


async def scrapes(link: Link) -> None:
    """Reads the metrics again and again."""
    await _ask(link, head("GET", "/metrics"))


async def documents(link: Link) -> None:
    """Reads the description of the interface again and again, compressed."""
    await _ask(link, head("GET", "/openapi.json", "accept-encoding: gzip"))


async def stored_bombs(link: Link) -> None:
    """Stores glossaries whose files are bombs."""
    await _ask(link, *map(_glossary, glossary_bombs(1, GLOSSARY_BYTES)))


def _glossary(bomb: Bomb) -> bytes:
    entries_format, text = bomb
    dictionary = {"source_language": "en", "target_language": "de", "format": entries_format, "text": text}
    return post({"name": "a", "dictionaries": [dictionary]}, "/v1/glossaries")


async def _ask(link: Link, *requests: bytes) -> None:
    """Repeats requests, each after the answer to the one before."""
    for request in cycle(requests):
        received = link.answers.received
        await link.send(request)
        while link.answers.received == received:
            await link.pause(0.005)


def client_hello() -> bytes:
    """Returns the first message of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="attacker")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("the handshake needs an answer")


CLIENT_HELLO = client_hello()


async def half_handshake(link: Link) -> None:
    """Sends a half of the first message of a TLS handshake, then nothing."""
    await link.send(CLIENT_HELLO[: len(CLIENT_HELLO) // 2])
    await link.hold()


async def unfinished_handshake(link: Link) -> None:
    """Sends the first message of a TLS handshake, then nothing."""
    await link.send(CLIENT_HELLO)
    await link.hold()
