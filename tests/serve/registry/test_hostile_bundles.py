"""Bundles that an attacker wrote: refused in one line, or ended by the time limit; the served model stays."""

import json
import os
import signal
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from dragoman.serve.bundle.bundle import WEIGHTS_FILE
from tests.support.bundles import make_endless
from tests.support.hostile import attack
from tests.support.live import WAIT_SECONDS
from tests.support.served import Server, serve

KEY = {"authorization": "Bearer key"}
OPTIONS = ("--admin-key", "key", "--engines", "1", "--slots", "2", "--load-timeout-seconds", "5")


def test_mutated_bundles_load_or_are_refused(toy_bundle: Path, tmp_path: Path, *, thorough: bool) -> None:
    attack("bundle", 3000 if thorough else 15, copytree(toy_bundle, tmp_path / "bundle"))


def reload(server: Server) -> dict[str, object]:
    _, body = server.post({}, "/v1/admin/reload", **KEY)
    return {name: value for name, value in json.loads(body).items() if value}


def test_a_graph_that_never_ends_fails_the_reload_and_the_server_goes_on(toy_bundle: Path, tmp_path: Path) -> None:
    """The thread that runs the graph computes until the process ends, which SIGTERM still ends with success."""
    folder = tmp_path / "models" / "toy"
    copytree(toy_bundle, folder)
    with serve(folder.parent, *OPTIONS) as server:
        before = server.rest("bird")
        make_endless(folder)
        failed = reload(server)["failed"]
        assert isinstance(failed, dict)
        assert "--load-timeout-seconds" in failed["toy"]
        assert server.rest("bird") == before
        assert server.metric("reload_failed_models") == 1
        rmtree(folder)
        copytree(toy_bundle, folder)
        assert reload(server) == {"unchanged": ["toy"]}
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(WAIT_SECONDS) == 0
    assert not any("Traceback" in line for line in server.lines)


def test_weights_shortened_in_place_end_the_process_and_change_no_answer(toy_bundle: Path, tmp_path: Path) -> None:
    """They are mapped into memory. A folder that replaces the old one by a rename has files of its own."""
    folder = copytree(toy_bundle, tmp_path / "models" / "toy")
    with serve(folder.parent, *OPTIONS) as server:
        before = server.rest("bird")
        copytree(toy_bundle, tmp_path / "toy")
        folder.rename(tmp_path / "old")
        (tmp_path / "toy").rename(folder)
        assert server.rest("bird") == before
        os.truncate(tmp_path / "old" / WEIGHTS_FILE, 0)
        with pytest.raises(OSError, match=r"closed|reset"):
            server.rest("bird")
        assert server.process.wait(WAIT_SECONDS) == -signal.SIGBUS
