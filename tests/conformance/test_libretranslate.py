"""The API tests of LibreTranslate pass. They come in its wheel, and run from a temporary folder."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from dragoman.serve.bundle.bundle import Bundle
from dragoman.serve.runtime.sessions import load_sessions
from tests.conformance.train import make_config, train_bundle
from tests.support.live import run_service

VERSION = "1.9.6"
TESTS = "libretranslate/tests/test_api/"
PAIRS = {
    ("en", "es"): {"Hello": "Hola", "World": "Mundo", "Hello, world!": "\u00a1Hola, mundo!", "a test": "una prueba"}
}
# Gives the tests a client of a server instead of one of an application.
CONFTEST = """
import os

import httpx
import pytest


class Answer:
    def __init__(self, response):
        self.data, self.status_code = response.content, response.status_code
        self.json = response.json() if response.content else None


class Client:
    def get(self, path):
        return Answer(httpx.get(os.environ["SERVER_URL"] + path, timeout=60))

    def post(self, path, **options):
        return Answer(httpx.post(os.environ["SERVER_URL"] + path, timeout=60, **options))


@pytest.fixture
def client():
    return Client()
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tests, downloaded from the package index."""
    folder = tmp_path_factory.mktemp("suite")
    download = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder))
    done = subprocess.run((*download, f"libretranslate=={VERSION}"), capture_output=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip(f"needs libretranslate {VERSION} of the package index")
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder, [name for name in archive.namelist() if name.startswith(TESTS)])
    (folder / TESTS / "conftest.py").write_text(CONFTEST)
    return folder / TESTS


def test_all_api_tests_of_libretranslate_pass(suite: Path, tmp_path: Path) -> None:
    train_bundle(PAIRS, make_config(PAIRS, vocabulary_size=40, max_steps=16), tmp_path / "run", tmp_path / "bundle")
    models = [load_sessions(Bundle.open(tmp_path / "bundle"), threads=1).runtime(slots=4)]
    with run_service(tmp_path / "bundle", models) as live:
        done = subprocess.run(
            (sys.executable, "-m", "pytest", "-q", "--rootdir", str(suite), "-p", "no:cacheprovider", str(suite)),
            capture_output=True,
            text=True,
            check=False,
            env={"SERVER_URL": live.http_url, "PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            cwd=suite,
        )
    assert "14 passed" in done.stdout, done.stdout
