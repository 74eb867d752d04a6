"""The field `callback` of documents over REST, and the settings of call backs."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dragoman.serve.host.files import FileError
from tests.support.cases import cases
from tests.support.live import LiveService, eventually, run_service

QUERY = {"source_language": "en", "target_language": "de", "name": "a.txt"}


@pytest.fixture(scope="module")
def served(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    folder = tmp_path_factory.mktemp("state")
    (folder / "keys").write_text("right name=a callbacks=true\nwrong name=b\n")
    (folder / "secret").write_text("whsec_" + "b2xk" * 8)
    files: dict[str, Any] = {"api_keys_file": folder / "keys", "callback_secret_file": folder / "secret"}
    with run_service(bundle_path, state_dir=folder, callback_hosts=["http://localhost:1"], **files) as live:
        yield live


@pytest.mark.parametrize(("key", "url", "status", "problem"), cases(__file__)["a URL of a key"])
def test_only_a_listed_host_of_a_key_with_the_right_is_taken_and_no_local_one_is_called(
    served: LiveService, key: str, url: str, status: int, problem: str
) -> None:
    how: dict[str, Any] = {"params": {**QUERY, "callback": url}, "headers": {"authorization": f"Bearer {key}"}}
    answer = served.post(path="/v1/documents", content=b"alpha.", **how)
    assert (answer.status_code, answer.json().get("detail", "")) == (status, problem)
    eventually(lambda: served.metric("callbacks_total", result="refused") == (status == 201))


def test_hosts_need_a_state_and_a_secret(bundle_path: Path, tmp_path: Path) -> None:
    for state_dir, missing in (None, "--state-dir"), (tmp_path, "--callback-secret-file"):
        expected = pytest.raises(FileError, match=f"^--callback-hosts: expected {missing} too")
        with expected, run_service(bundle_path, state_dir=state_dir, callback_hosts=["a.test"]):
            pass
