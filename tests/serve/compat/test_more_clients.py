"""Clients of LibreTranslate and DeepL that run as programs of their own, unchanged: `make clients` installs them."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import cases
from tests.support.live import LiveService
from tests.support.paths import ROOT

CASES = cases(__file__)

CLIENTS = ROOT / ".clients"
TEXT = "ab ba"
PO = f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{TEXT}"\nmsgstr ""\n'
# What this client lacks: the address of the server.
DEEPL_I18N = """
import sys, deepl
deepl.Translator._DEEPL_SERVER_URL = sys.argv.pop(1)
from deepl_i18n.cli import main
sys.exit(main())
"""
DEEPL_HAYSTACK = f"""
import sys, deepl
deepl.Translator._DEEPL_SERVER_URL = sys.argv[1]
from deepl_haystack import DeepLDocumentTranslator, DeepLTextTranslator
from haystack import Document
from haystack.utils import Secret
options = {{"api_key": Secret.from_token("any"), "source_lang": "EN", "target_lang": "DE"}}
print(DeepLTextTranslator(**options).run({TEXT!r})["translation"])
print(DeepLDocumentTranslator(**options).run([Document(content={TEXT!r})])["documents"][0].content)
"""
# TEXT stands for the text, URL for the address of the server, PATH for the file of the package.
LIBRETRANSLATE: str = CASES["libretranslate"]
TRANSLATE: str = CASES["translate"]
DEEPL_NODE: str = CASES["deepl node"]
NODE = shutil.which("node")


@pytest.fixture(scope="module")
def expected(lettered: LiveService) -> str:
    return str(lettered.post({"text": TEXT}).json()["translations"][0]["text"])


def run(client: str, *command: str, folder: Path, **environment: str) -> str:
    """Runs a program with the libraries of a client, and returns its output."""
    libraries = CLIENTS / client
    if not libraries.is_dir():
        pytest.skip("needs the clients: make clients")
    variables = {**os.environ, "PYTHONPATH": str(libraries), "NODE_PATH": str(libraries), **environment}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_node(script: str, live: LiveService, folder: Path) -> str:
    if NODE is None:
        pytest.skip("needs Node")
    package = CLIENTS / "node_modules" / "translate" / "index.min.js"
    path = folder / "script.cjs"
    for name, value in (("TEXT", TEXT), ("URL", live.http_url), ("PATH", str(package))):
        script = script.replace(name, value)
    path.write_text(f"(async () => {{ {script} }})()")
    return run("node_modules", NODE, str(path), folder=folder).strip()


def test_transpolibre_translates_a_file_of_messages(lettered: LiveService, expected: str, tmp_path: Path) -> None:
    (tmp_path / "messages.po").write_text(PO)
    arguments = ("--url", lettered.http_url, "--source-lang", "en", "--target-lang", "de", "--file", "messages.po")
    program = "from transpolibre.main import main; main()"
    run("transpolibre-0.8.15", sys.executable, "-c", program, *arguments, folder=tmp_path)
    assert f'msgstr "{expected}"' in (tmp_path / "messages.po").read_text()


def test_the_command_of_deepl_translates_texts_and_documents(
    lettered: LiveService, expected: str, tmp_path: Path
) -> None:
    environment = {"DEEPL_AUTH_KEY": "any", "DEEPL_SERVER_URL": lettered.http_url}
    command = (sys.executable, "-m", "deepl")
    output = run("deepl-1.30.0", *command, "text", "--from", "EN", "--to", "DE", TEXT, folder=tmp_path, **environment)
    assert output.strip() == expected
    (tmp_path / "one.txt").write_text(TEXT)
    document = ["document", "--from", "EN", "--to", "DE", "one.txt", "out"]
    run("deepl-1.30.0", *command, *document, folder=tmp_path, **environment)
    assert (tmp_path / "out" / "one.txt").read_text() == expected
    assert "DE: German" in run("deepl-1.30.0", *command, "languages", folder=tmp_path, **environment)


def test_deepl_i18n_translates_a_file_of_messages(lettered: LiveService, expected: str, tmp_path: Path) -> None:
    (tmp_path / "de.po").write_text(PO.replace("UTF-8\\n", "UTF-8\\nLanguage: de\\n"))
    program = (sys.executable, "-c", DEEPL_I18N, lettered.http_url, "po", "de.po", "--source-lang", "EN")
    output = run("deepl-i18n-1.0.0", *program, folder=tmp_path, DEEPL_API_KEY="any")
    assert f'msgstr "{expected}"' in (tmp_path / "de.po").read_text(), output


def test_deepl_haystack_translates_texts_and_documents(lettered: LiveService, expected: str, tmp_path: Path) -> None:
    program = (sys.executable, "-c", DEEPL_HAYSTACK, lettered.http_url)
    output = run("deepl-haystack-0.4.2", *program, folder=tmp_path, HAYSTACK_TELEMETRY_ENABLED="False")
    assert output.splitlines() == [expected, expected]


@pytest.mark.parametrize("script", [LIBRETRANSLATE, TRANSLATE], ids=["libretranslate", "translate"])
def test_packages_of_node_translate(lettered: LiveService, expected: str, tmp_path: Path, script: str) -> None:
    assert run_node(script, lettered, tmp_path) == expected


def test_deepl_node_translates_texts_and_keeps_glossaries(lettered: LiveService, expected: str, tmp_path: Path) -> None:
    assert run_node(DEEPL_NODE, lettered, tmp_path).split("\n") == [expected, "eins", "false"]
