"""Attacks over HTTP/1.1, one function per family: what one client does on one connection.

Each returns when the client has done what it wanted, or raises `EndedError` when the server ends the connection.
"""

import gzip
import json
import ssl
from itertools import cycle

from tests.support.attacks.glossaries import Bomb, glossary_bombs
from tests.support.attacks.link import Behavior, Link

DRIP_SECONDS = 1.0
HOUR_MS = 3_600_000
GLOSSARY_BYTES = 400_000
JSON, GZIP = "content-type: application/json", "content-encoding: gzip"


def head(method: str, path: str, *fields: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "host: attacker", *fields, "", "")).encode()


def post(body: object, path: str = "/v1/translate", *fields: str) -> bytes:
    """Returns a request with a JSON body; a body of bytes is sent as it is."""
    data = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    return head("POST", path, JSON, f"content-length: {len(data)}", *fields) + data


# Large answers to few sentences: gaps come back.
GAPS = "A dog." + "\n" * 9_990
BEGUN_BODY = head("POST", "/v1/translate", JSON, "content-length: 100", f"x-request-timeout-ms: {HOUR_MS}") + b"{"
ENDLESS_HEAD = b"GET /healthz HTTP/1.1\r\nhost: attacker\r\nx-a: "


async def idle(link: Link) -> None:
    await link.hold()


def hold_after(data: bytes) -> Behavior:
    """Sends this, then nothing."""

    async def attack(link: Link) -> None:
        await link.send(data)
        await link.hold()

    return attack


def drip_after(data: bytes, piece: bytes = b"a") -> Behavior:
    """Sends this, then a piece per second until the server answers."""

    async def attack(link: Link) -> None:
        await link.send(data)
        while not link.answers.received:
            await link.pause(DRIP_SECONDS)
            await link.send(piece)

    return attack


def pour(data: bytes) -> Behavior:
    """Sends this again and again without waiting for answers, as fast as the server takes it."""

    async def attack(link: Link) -> None:
        while True:
            await link.send(data)

    return attack


def ask(*requests: bytes) -> Behavior:
    """Repeats requests, each after the answer to the one before."""

    async def attack(link: Link) -> None:
        for request in cycle(requests):
            received = link.answers.received
            await link.send(request)
            while link.answers.received == received:
                await link.pause(0.005)

    return attack


async def open_and_close(link: Link) -> None:
    """Sends one request and closes the connection after 10 ms."""
    await link.send(head("GET", "/healthz"))
    await link.pause(0.01)


idle_after_answer = hold_after(head("GET", "/healthz"))
half_header = hold_after(ENDLESS_HEAD)
slow_header = drip_after(ENDLESS_HEAD)
# This one has the longest deadline.
missing_body = drip_after(BEGUN_BODY, b"")
slow_body = drip_after(BEGUN_BODY)
slow_chunks = drip_after(
    head("POST", "/v1/translate", JSON, "transfer-encoding: chunked") + b'1\r\n"\r\n', b"1\r\na\r\n"
)
# Clients that never read send this one.
large_answers = hold_after((head("GET", "/openapi.json") + post({"text": [GAPS]})) * 8)
events = hold_after(post({"text": [GAPS] * 8}, "/v1/translate/stream"))
pipelined = pour(head("GET", "/readyz") * 100)
# Each is worth a line of the log.
refused = pour((post({"text": ""}) + post(b"{") + head("GET", "/nowhere")) * 30)
# Every character of it normalizes to 18; the body has 1.9 MB.
long_characters = ask(post({"text": ["\N{ARABIC LIGATURE SALLALLAHOU ALAYHE WASALLAM}" * 10_000] * 64}))
# More than fit.
many_sentences = ask(post({"text": ["a\n" * 5_000] * 64}))
nested_json = ask(post(b'{"text":[' + b"[]," * 660_000 + b"[]]}"))
# Grows to 2 MiB, of which the parser reads everything.
bombs = ask(post(gzip.compress(b'{"text":"a"' + b" " * (2_097_152 - 12) + b"}"), "/v1/translate", GZIP))
# The same on routes that need no engine: LibreTranslate's, and DeepL's, which read a body before the key.
WAITING_BOMB = gzip.compress(b'{"q":"a"' + b" " * (2_097_152 - 9) + b"}")
waiting_bombs = ask(*(post(WAITING_BOMB, path, GZIP) for path in ("/detect", "/v2/glossaries")))
scrapes = ask(head("GET", "/metrics"))
# The description of the interface, compressed.
documents = ask(head("GET", "/openapi.json", "accept-encoding: gzip"))


async def stored_bombs(link: Link) -> None:
    await ask(*map(_glossary, glossary_bombs(1, GLOSSARY_BYTES)))(link)


def _glossary(bomb: Bomb) -> bytes:
    entries_format, text = bomb
    dictionary = {"source_language": "en", "target_language": "de", "format": entries_format, "text": text}
    return post({"name": "a", "dictionaries": [dictionary]}, "/v1/glossaries")


def client_hello() -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="attacker")
    try:
        tls.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError("the handshake needs an answer")


CLIENT_HELLO = client_hello()
half_handshake = hold_after(CLIENT_HELLO[: len(CLIENT_HELLO) // 2])
unfinished_handshake = hold_after(CLIENT_HELLO)
