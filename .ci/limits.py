"""Fills in the tables of fixed limits in docs/security.md and docs/configuration.md: `make tables`.

The tables stand here, with the numbers of the code. `files` yields the texts of both pages.
"""

from collections.abc import Iterator
from pathlib import Path

from dragoman.model.provenance import fill
from dragoman.serve.compat.libretranslate.suggestions import MAX_SUGGESTIONS
from dragoman.serve.composition import MAX_LARGEST_DOCUMENTS
from dragoman.serve.edge.body_coding import SMALL_CONTENT_BYTES
from dragoman.serve.edge.reader import MAX_BODIES_SHARE, MAX_LARGEST_BODIES
from dragoman.serve.grpc import connections, guard, health, options, pace, reflection, unread, waits
from dragoman.serve.grpc.api import UNREAD_SECONDS
from dragoman.serve.grpc.call import SEND_TIMEOUT_SECONDS
from dragoman.serve.http.limits import MAX_CONNECTIONS, MAX_HELD_BYTES, HttpLimits
from dragoman.serve.http.parser import MAX_HEADER_BYTES, MAX_HEADER_FIELDS, MAX_PIPELINED, MAX_TARGET_BYTES
from dragoman.serve.settings import ServeSettings
from dragoman.serve.translation.large_work import PERIODS

DOCS = Path(__file__).resolve().parent.parent / "docs"
SHARES = {0.25: "a quarter", 0.125: "an eighth"}
SETTINGS = {name: field.default for name, field in ServeSettings.model_fields.items()}
HTTP = HttpLimits()

SERVICE_TABLE = f"""
| what | limit | setting |
| --- | --- | --- |
| REST connections: headers, bodies, unread answers, idle time, number | [configuration.md](configuration.md#http-connections) | `--http-max-connections-per-address`; the rest is fixed |
| gRPC connections, calls, streams, watches, reflection | [below](#grpc) | ages and pings: [configuration.md](configuration.md#grpc-connections) |
| size of a request | {SETTINGS["max_body_bytes"] >> 20} MiB, also after decompression | `--max-body-bytes` |
| complete bodies of more than {SMALL_CONTENT_BYTES >> 10} KiB, until their requests end | {MAX_LARGEST_BODIES} times `--max-body-bytes`, together | the same |
| values in a JSON body or a message | grows with `--max-texts`; counted before parsing | `--max-texts` |
| texts and sentences of a request, tokens, deadline | [configuration.md](configuration.md#limits-of-a-request) | the same page |
| splitting and tokenizing | stops at the first sentence beyond the limit | |
| requests sent before the answer to another one, and TLS handshakes | one starts in each iteration of the event loop | |
| large JSON and texts | are parsed, tokenized, and given their tags and terms one at a time, {SHARES[1 / PERIODS]} of the time of one CPU | |
| documents: size, unpacked size, number, age | [documents.md](documents.md#over-rest) | `--document-max-bytes` and others |
| documents: texts, tags, levels, members of packages | [documents.md](documents.md#limits); the service reads one at a time | |
| parsers: memory, time, size of the result | [below](#parsers) | `--document-max-bytes` |
| documents: bodies that are being read, and complete ones | {MAX_LARGEST_DOCUMENTS} times the sum of `--document-max-bytes` and `--max-body-bytes`, each | the same |
| bodies for LibreTranslate and DeepL, which may hold the key | the same as others; read before the key is checked | |
| stored suggestions | {MAX_SUGGESTIONS:,} | `--libretranslate-suggestions` |
| stored documents, glossaries and suggestions of a client | half of what others leave ([documents.md](documents.md#over-rest)) | |
| indexes of glossaries in memory | [terms.md](terms.md#stored-glossaries) | |
| running and waiting requests | [configuration.md](configuration.md#limits-of-the-service) | `--slots`, `--queue-limit` |
| log lines that are not written | dropped and counted beyond the queue | |
| lines of libraries on standard error | lost while a pipe or socket is full | |
| loading and proof of a model | {SETTINGS["load_timeout_seconds"]:g} s each | `--load-timeout-seconds` |
| bundles and imports | [models.md](models.md#limits-of-a-load), [import.md](import.md#limits) | |
"""

GRPC_TABLE = f"""
| what waits for a client | limit | beyond it |
| --- | --- | --- |
| TLS handshake and first frame | {options.HANDSHAKE_SECONDS:g} s | the connection closes |
| connections | {options.MAX_CONNECTIONS:,}, at most {SHARES[options.CONNECTIONS_PER_FILE]} of the open files | a new connection closes at once |
| idle connections | {options.MAX_IDLE_CONNECTIONS:,}, at most half of the connections | the address with the most loses those idle the longest (Linux) |
| concurrent calls of a connection | {options.MAX_STREAMS} | clients queue; gRPC refuses streams of other clients |
| calls of a method that the event loop has not seen | {options.MAX_PENDING_CALLS:,}, or {options.PENDING_CALLS_PER_ROW} for each row if more | CANCELLED without details |
| errors of the client, per caller | {pace.REFUSALS_AT_ONCE} at once, then {pace.REFUSALS_PER_SECOND:g} per second | an error is sent late, by at most {pace.MAX_SECONDS:g} s |
| message of a unary call | {guard.MESSAGE_SECONDS:g} s; {guard.WAITING_CALLS:,} calls | DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED |
| next message of a stream of requests | {waits.IDLE_STREAM_SECONDS:g} s; {waits.IDLE_STREAMS:,} streams per method | see below |
| health watches | {health.WATCH_SECONDS / 3600:g} h; {health.WATCHES:,} watches | DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED |
| reflection | {reflection.IDLE_SECONDS:g} s between messages; {reflection.STREAMS} streams; {reflection.STREAM_MESSAGES:,} messages | DEADLINE_EXCEEDED; RESOURCE_EXHAUSTED |
| each message of a streamed response | {SEND_TIMEOUT_SECONDS:g} s; in flight for {UNREAD_SECONDS:g} s | the server stops the translation; CANCELLED, see below |
| unread responses of unary calls | {unread.UNREAD_BYTES >> 20} MiB, of a caller half of what others leave | RESOURCE_EXHAUSTED, see below |
| header of a call | 8 to 16 KiB | RESOURCE_EXHAUSTED |
| bytes that no call needs, per connection | {connections.SPARE_BYTES >> 20} MiB, and {connections.SPARE_BYTES_PER_SECOND >> 10} KiB per second | the kernel drops the packets of the connection (Linux) |
"""

HTTP_TABLE = f"""
| limit | value | beyond it |
| --- | --- | --- |
| TLS handshake | {HTTP.header_seconds:g} s | closed |
| header of a request, also the first of a connection | {HTTP.header_seconds:g} s | 408, closed |
| body of a request | {HTTP.body_seconds:g} s, and 1 s per {HTTP.body_bytes_per_second >> 10} KiB received | 408, closed |
| answer that the client does not read | {HTTP.send_seconds:g} s without progress | closed |
| time between two requests | {HTTP.idle_seconds:g} s | closed |
| open connections | {MAX_CONNECTIONS:,}, or half of the file descriptors | closes one that waits, else 503 |
| bodies that are being read | {SHARES[MAX_BODIES_SHARE]} of the connections, and {MAX_LARGEST_BODIES} times `--max-body-bytes` | 408 for the oldest |
| complete bodies of more than {SMALL_CONTENT_BYTES >> 10} KiB, until their requests end | {MAX_LARGEST_BODIES} times `--max-body-bytes` | 429 |
| unread answers in memory, of all connections | {MAX_HELD_BYTES >> 20} MiB | closes the largest |
| header fields | {MAX_HEADER_FIELDS}, and {MAX_HEADER_BYTES >> 10} KiB | 431, closed |
| target of a request | {MAX_TARGET_BYTES >> 10} KiB | 414, closed |
| requests that wait for an earlier answer on a connection | {MAX_PIPELINED} | 503, closed |
"""


def files() -> Iterator[tuple[Path, str]]:
    """Yields each page and the text that it should have."""
    for page, tables in {
        "security": {"limits": SERVICE_TABLE, "grpc limits": GRPC_TABLE},
        "configuration": {"http limits": HTTP_TABLE},
    }.items():
        path = DOCS / f"{page}.md"
        text = path.read_text(encoding="utf-8")
        for name, table in tables.items():
            text = fill(text, name, table)
        yield path, text


if __name__ == "__main__":
    for path, text in files():
        path.write_text(text, encoding="utf-8")
