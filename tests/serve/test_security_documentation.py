"""The limits that `docs/security.md` and the pages that it refers to state are those of the code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from serve.compat.libretranslate.suggestions import MAX_SUGGESTIONS
from serve.compat.open_inference.grpc import PROBES
from serve.composition import MAX_LARGEST_DOCUMENTS
from serve.edge.body_coding import SMALL_CONTENT_BYTES
from serve.edge.reader import MAX_BODIES_SHARE, MAX_LARGEST_BODIES
from serve.edge.value_limit import SPARE_VALUES, VALUES_PER_TEXT
from serve.glossaries.index_cache import MAX_CLIENT_BYTES, MAX_INDEX_BYTES
from serve.glossaries.store import MAX_DICTIONARIES, MAX_GLOSSARIES, MAX_STORED_BYTES, MAX_STORED_GLOSSARIES
from serve.grpc import connections as grpc_connections
from serve.grpc import guard as grpc_guard
from serve.grpc import health as grpc_health
from serve.grpc import options as grpc_options
from serve.grpc import pace as grpc_pace
from serve.grpc import reflection as grpc_reflection
from serve.grpc import unread as grpc_unread
from serve.grpc import waits as grpc_waits
from serve.grpc.call import SEND_TIMEOUT_SECONDS
from serve.http import limits as http_limits
from serve.http import parser as http_parser
from serve.http.compression import COMPRESSED_FROM_BYTES
from serve.http.limits import HttpLimits
from serve.protect.terms.entry import MAX_DICTIONARY_BYTES, MAX_ENTRIES
from serve.settings import ServeSettings
from serve.translation.turns import PERIODS, SMALL_TEXT_BYTES
from tests.support.live import LiveService, run_service
from tests.support.paths import ROOT

DOCS = ROOT / "docs"
SECURITY = (DOCS / "security.md").read_text(encoding="utf-8")
# These options are Docker's.
FOREIGN_OPTIONS = {"--stop-timeout"}
SHARES = {0.25: "a quarter", 0.125: "an eighth"}
CONNECTIONS_SHARE = SHARES[grpc_options.CONNECTIONS_PER_FILE]


def glossary_statements() -> Iterator[tuple[str, str]]:
    """Yields the statements about stored glossaries."""
    yield "terms", f"up to {MAX_GLOSSARIES:,} glossaries of up to {MAX_DICTIONARIES} dictionaries"
    yield "terms", f"store {MAX_STORED_GLOSSARIES:,} glossaries and {MAX_STORED_BYTES >> 30} GiB"
    yield "terms", f"{MAX_INDEX_BYTES >> 20} MiB in all, {MAX_CLIENT_BYTES >> 20} MiB of a client"
    yield "terms", f"up to {MAX_ENTRIES:,} entries that take at most {MAX_DICTIONARY_BYTES >> 20} MiB"


def statements() -> Iterator[tuple[str, str]]:
    """Yields a page, and what it must contain."""
    yield from glossary_statements()
    settings = {name: field.default for name, field in ServeSettings.model_fields.items()}
    http = HttpLimits()
    yield "security", f"{settings['max_body_bytes'] >> 20} MiB, also after decompression"
    yield "security", f"{settings['load_timeout_seconds']:g} s each"
    yield "security", f"handshake and first frame | {grpc_options.HANDSHAKE_SECONDS:g} s |"
    yield from (
        ("security", f"connections | {grpc_options.MAX_CONNECTIONS:,}, at most {CONNECTIONS_SHARE} of the open"),
        ("security", f"idle connections | {grpc_options.MAX_IDLE_CONNECTIONS:,}, at most half of the connections |"),
    )
    yield "security", f"concurrent calls of a connection | {grpc_options.MAX_STREAMS} |"
    yield (
        "security",
        f"| {grpc_options.MAX_PENDING_CALLS:,}, or {grpc_options.PENDING_CALLS_PER_ROW} for each row if more",
    )
    yield "security", f"message of a unary call | {grpc_guard.MESSAGE_SECONDS:g} s; {grpc_guard.WAITING_CALLS:,} calls"
    paced = f"{grpc_pace.REFUSALS_AT_ONCE} at once, then {grpc_pace.REFUSALS_PER_SECOND:g} per second"
    yield "security", f"{paced} | an error is sent late, by at most {grpc_pace.MAX_SECONDS:g} s |"
    yield "security", f"| {grpc_waits.IDLE_STREAM_SECONDS:g} s; {grpc_waits.IDLE_STREAMS:,} streams per method"
    yield "security", f"health watches | {grpc_health.WATCH_SECONDS / 3600:g} h; {grpc_health.WATCHES:,} watches"
    yield "security", f"| {grpc_reflection.IDLE_SECONDS:g} s between messages; {grpc_reflection.STREAMS} streams"
    yield "security", f"streams; {grpc_reflection.STREAM_MESSAGES:,} messages"
    yield "security", f"message of a streamed response | {SEND_TIMEOUT_SECONDS:g} s"
    yield "security", f"unread responses of unary calls | {grpc_unread.UNREAD_BYTES >> 20} MiB"
    spare, spare_rate = grpc_connections.SPARE_BYTES >> 20, grpc_connections.SPARE_BYTES_PER_SECOND >> 10
    yield "security", f"bytes that no call needs, per connection | {spare} MiB, and {spare_rate} KiB per second |"
    silent_seconds = settings["grpc_keepalive_seconds"] + settings["grpc_keepalive_timeout_seconds"]
    yield "security", f"gets no answer, by default after {silent_seconds:g} s"
    minutes = settings["grpc_max_connection_age_seconds"] + settings["grpc_max_connection_age_grace_seconds"]
    yield "security", f"by default for at most {minutes / 60:.0f} minutes"
    yield "security", f"one at a time, {SHARES[1 / PERIODS]} of the time of one CPU"
    yield "security", f"being read, and complete ones | {MAX_LARGEST_DOCUMENTS} times the sum of"
    yield "security", f"stored suggestions | {MAX_SUGGESTIONS:,} |"
    yield "api", f"which takes at most {SHARES[1 / PERIODS]} of a core"
    yield "api", f"at most {SPARE_VALUES:,} values plus {VALUES_PER_TEXT} per text"
    yield "api", f"Requests of more than {SMALL_TEXT_BYTES >> 10} KiB of"
    yield "api", f"responses of {COMPRESSED_FROM_BYTES:,} bytes or more"
    yield "configuration", f"TLS handshake | {http.header_seconds:g} s"
    yield "configuration", f"also the first of a connection | {http.header_seconds:g} s"
    rate = f"{http.body_seconds:g} s, and 1 s per {http.body_bytes_per_second >> 10} KiB"
    yield "configuration", f"body of a request | {rate} received"
    yield "configuration", f"does not read | {http.send_seconds:g} s without progress"
    yield "configuration", f"time between two requests | {http.idle_seconds:g} s"
    yield "configuration", f"open connections | {http_limits.MAX_CONNECTIONS:,}, or half of"
    bodies = f"{SHARES[MAX_BODIES_SHARE]} of the connections, and {MAX_LARGEST_BODIES} times"
    yield "configuration", f"bodies that are being read | {bodies} `--max-body-bytes`"
    held = f"of more than {SMALL_CONTENT_BYTES >> 10} KiB, until their requests end | {MAX_LARGEST_BODIES} times"
    yield "configuration", f"{held} `--max-body-bytes` | 429 |"
    yield "configuration", f"themselves: {MAX_LARGEST_DOCUMENTS} times the sum of `--document-max-bytes`"
    yield "security", f"{held} `--max-body-bytes`, together"
    yield "configuration", f"unread answers in memory, of all connections | {http_limits.MAX_HELD_BYTES >> 20} MiB"
    header = f"{http_parser.MAX_HEADER_FIELDS}, and {http_parser.MAX_HEADER_BYTES >> 10} KiB"
    yield "configuration", f"header fields | {header}"
    yield "configuration", f"target of a request | {http_parser.MAX_TARGET_BYTES >> 10} KiB"
    yield "configuration", f"earlier answer on a connection | {http_parser.MAX_PIPELINED} |"


@pytest.mark.parametrize(("page", "statement"), list(statements()))
def test_a_stated_limit_is_that_of_the_code(page: str, statement: str) -> None:
    assert statement in " ".join((DOCS / f"{page}.md").read_text(encoding="utf-8").split())


def test_every_setting_of_the_page_exists() -> None:
    options = set(re.findall(r"--[a-z][a-z-]+", SECURITY)) - FOREIGN_OPTIONS
    known = {f"--{name.replace('_', '-')}" for name in ServeSettings.model_fields}
    known |= {f"--no-{name.replace('_', '-')}" for name in ServeSettings.model_fields}
    assert options
    assert options <= known


def test_the_table_of_open_routes_is_complete(bundle_path: Path, tmp_path: Path) -> None:
    opened = set[str]()
    running = run_service(bundle_path, api_keys="secret", admin_key="admin", state_dir=tmp_path)
    with running as service, service.http() as client:
        document = client.get("/openapi.json", headers={"authorization": "Bearer secret"}).json()
        for path, methods in document["paths"].items():
            for method in methods:
                answer = client.request(method, re.sub(r"\{\w+\}", "x", path))
                # LibreTranslate answers 400 if there is no key, DeepL 403.
                if answer.status_code not in (401, 403) and "API key" not in answer.text:
                    opened.add(path)
    named = {path for path in opened if f"`{path}`" in SECURITY or f"`{path.replace('{name}', 'NAME')}`" in SECURITY}
    assert opened - named == set()


def test_every_open_method_of_grpc_is_named() -> None:
    assert {path for path in PROBES if f"`{path.rpartition('/')[2]}`" not in SECURITY} == set()


def test_every_metric_of_the_page_exists(live: LiveService) -> None:
    names = set(re.findall(r"`(dragoman_[a-z_]+)", SECURITY))
    metrics = live.get("/metrics").text
    assert names
    assert [name for name in names if f"\n{name}" not in metrics] == []


def test_every_link_of_the_page_leads_to_a_section() -> None:
    for page, anchor in re.findall(r"\]\(([\w.]*)#([\w-]+)\)", SECURITY):
        text = (DOCS / (page or "security.md")).read_text(encoding="utf-8")
        anchors = {
            re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
        }
        assert anchor in anchors, f"{page}#{anchor}"
