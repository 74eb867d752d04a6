"""Checks a running serving container from inside, and prints its findings as one line of JSON.

`deploy/container_test.sh` runs it with the Python of the container, without published ports or further libraries. A
violated rule ends it with the text of the rule.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener
from zipfile import ZipFile

import grpc

from dragoman.protos.translation_pb2 import TranslateRequest
from dragoman.protos.translation_pb2_grpc import TranslationServiceStub

REST = "http://127.0.0.1:8000"
GRPC = "127.0.0.1:8001"
SENTENCE = "A man in a red shirt is playing the guitar."
# Explicit, because a bundle may have several directions.
SOURCE_LANGUAGE = "en"
TARGET_LANGUAGE = "de"
LOAD_TEXTS = 32
LOAD_REQUESTS = 40
LATE_REQUESTS = 20
# Training and installation need these; `dragoman pull` needs onnx, so it may be there.
ABSENT_MODULES = ("torch", "onnxscript", "pip")
START_SECONDS = 60.0
DOCUMENT_SECONDS = 60.0
# The smallest Word document: a package of two parts.
WORD_TYPES = (
    '<Types><Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
    'wordprocessingml.document.main+xml"/></Types>'
)
WORD_PART = "word/document.xml"
WORD_TEXT = (
    '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body><w:p><w:r><w:t>{}'
    "</w:t></w:r></w:p></w:body></w:document>"
)
# The process of the container (Linux).
INIT = Path("/proc/1")
KIBIBYTES_PER_MEBIBYTE = 1 << 10

open_url = build_opener(ProxyHandler({})).open


def is_ready() -> bool:
    """Returns the readiness; False without a response."""
    try:
        open_url(f"{REST}/readyz", timeout=5).close()
    except (HTTPError, OSError):
        return False
    return True


def wait_ready() -> None:
    """Waits until the server is ready; raises SystemExit if it is not ready within `START_SECONDS`."""
    deadline_seconds = time.monotonic() + START_SECONDS
    while not is_ready():
        if time.monotonic() > deadline_seconds:
            raise SystemExit("the server is not ready in time")
        time.sleep(0.05)


def send_until_stopping() -> int:
    """Sends requests until the server is a lame duck, then `LATE_REQUESTS` more; returns their number. None fails."""
    requests = 0
    while is_ready():
        requests += len(post([SENTENCE]))
        print("sending", flush=True)
    return requests + sum(len(post([SENTENCE])) for _ in range(LATE_REQUESTS))


def check_isolation() -> None:
    """Checks the privileges of the process; raises SystemExit with the violated rule."""
    status = dict(line.split(":\t", 1) for line in (INIT / "status").read_text().splitlines())
    require(status["Uid"].split()[0] == str(os.getuid()) != "0", "the server does not run as root")
    require(int(status["CapEff"], 16) == 0, "the server has no capabilities")
    require(status["NoNewPrivs"] == "1", "the server can gain no privileges")
    require(b"dragoman\0serve" in (INIT / "cmdline").read_bytes(), "the server is process 1")
    for folder in ("/", "/opt/dragoman", "/bundles"):
        require(not os.access(folder, os.W_OK), f"{folder} is read-only")
    for module in ABSENT_MODULES:
        require(find_spec(module) is None, f"{module} is not in the environment")
    for program in ("gcc", "cc", "make"):
        require(not any(Path(folder, program).exists() for folder in os.get_exec_path()), f"{program} is not there")


def require(held: bool, rule: str) -> None:
    """Checks a rule; raises SystemExit with the rule, if it does not hold."""
    if not held:
        raise SystemExit(f"violated: {rule}")


def post(texts: list[str]) -> list[str]:
    """Translates over REST."""
    languages = {"source_language": SOURCE_LANGUAGE, "target_language": TARGET_LANGUAGE}
    body = json.dumps({"text": texts} | languages).encode()
    request = Request(f"{REST}/v1/translate", body, {"content-type": "application/json"})  # noqa: S310 - the scheme is http
    with open_url(request, timeout=60) as response:
        return [translation["text"] for translation in json.load(response)["translations"]]


def call(texts: list[str]) -> list[str]:
    """Translates over gRPC."""
    request = TranslateRequest(text=texts, source_language=SOURCE_LANGUAGE, target_language=TARGET_LANGUAGE)
    with grpc.insecure_channel(GRPC) as channel:
        response = TranslationServiceStub(channel).Translate(request, timeout=60)
        return [translation.text for translation in response.translations]


def translate_document(name: str, content: bytes) -> bytes:
    """Translates a file over REST; raises SystemExit if it is not translated within `DOCUMENT_SECONDS`."""
    fields = f"source_language={SOURCE_LANGUAGE}&target_language={TARGET_LANGUAGE}"
    disposition = f'content-disposition: form-data; name="file"; filename="{name}"'
    form = b"--limit\r\n%b\r\n\r\n%b\r\n--limit--\r\n" % (disposition.encode(), content)
    headers = {"content-type": "multipart/form-data; boundary=limit"}
    request = Request(f"{REST}/v1/documents?{fields}", form, headers)  # noqa: S310 - the scheme is http
    deadline_seconds = time.monotonic() + DOCUMENT_SECONDS
    with open_url(request, timeout=DOCUMENT_SECONDS) as response:
        document = json.load(response)
    while document["status"] != "done":
        require(document["status"] != "failed", f"{name} is translated: {document['error']}")
        require(time.monotonic() < deadline_seconds, f"{name} is translated in time: {document}")
        time.sleep(0.05)
        with open_url(f"{REST}/v1/documents/{document['id']}", timeout=DOCUMENT_SECONDS) as response:
            document = json.load(response)
    with open_url(f"{REST}/v1/documents/{document['id']}/result", timeout=DOCUMENT_SECONDS) as response:
        result: bytes = response.read()
    return result


def pack_word(text: str) -> bytes:
    """Returns a Word document with one paragraph."""
    packed = BytesIO()
    with ZipFile(packed, "w") as package:
        package.writestr("[Content_Types].xml", WORD_TYPES)
        package.writestr(WORD_PART, WORD_TEXT.format(text))
    return packed.getvalue()


def check_documents(translation: str) -> None:
    """Checks that processes of the container parse a form, Markdown and Word; raises SystemExit with the problem."""
    markdown = translate_document("page.md", f"# {SENTENCE}\n".encode()).decode()
    require(markdown == f"# {translation}\n", f"a Markdown document is translated: {markdown}")
    word = ZipFile(BytesIO(translate_document("page.docx", pack_word(SENTENCE)))).read(WORD_PART).decode()
    require(f">{translation}</w:t>" in word, f"a Word document is translated: {word}")


def memory_mebibytes() -> int:
    """Returns the memory of all processes of the server; what they share counts once."""
    kibibytes = 0
    for process in INIT.parent.glob("[0-9]*"):
        with suppress(FileNotFoundError, ProcessLookupError):  # ended meanwhile
            if process.name != str(os.getpid()):
                rollup = (process / "smaps_rollup").read_text()
                kibibytes += next(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    return kibibytes // KIBIBYTES_PER_MEBIBYTE


@contextmanager
def timed(figures: dict[str, object], name: str) -> Iterator[None]:
    """Adds the duration of the block in seconds to the figures."""
    started_seconds = time.monotonic()
    yield
    figures[name] = round(time.monotonic() - started_seconds, 3)


def main() -> None:
    """Checks and measures; also documents with `documents`. With `stop`, only sends requests while the server stops."""
    if sys.argv[1:] == ["stop"]:
        print(send_until_stopping())
        return
    wait_ready()
    check_isolation()
    figures: dict[str, object] = {"idle_mebibytes": memory_mebibytes()}
    with timed(figures, "first_rest_seconds"):
        (translation,) = post([SENTENCE])
    with timed(figures, "first_grpc_seconds"):
        require(call([SENTENCE]) == [translation], "both interfaces give the same translation")
    figures["translation"] = translation
    with timed(figures, "load_seconds"):
        for _ in range(LOAD_REQUESTS):
            require(set(post([SENTENCE] * LOAD_TEXTS)) == {translation}, "the translation is the same in any company")
    figures |= {"load_texts": LOAD_TEXTS * LOAD_REQUESTS, "load_mebibytes": memory_mebibytes()}
    if sys.argv[1:] == ["documents"]:
        with timed(figures, "documents_seconds"):
            check_documents(translation)
        figures["documents_mebibytes"] = memory_mebibytes()
    print(json.dumps(figures, ensure_ascii=False))


if __name__ == "__main__":
    main()
