"""The Locust users on a real service, in a separate process because Locust patches the standard library."""

import csv
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.certificates import Authority
from tests.support.live import LiveService, run_service
from tests.support.paths import ROOT

FILE = ROOT / "loadtest" / "locustfile.py"
TWO_USERS = ("--users", "2", "--spawn-rate", "10", "--run-time", "2s")


class Ended(NamedTuple):
    """Exit status, log and statistics of Locust."""

    status: int
    log: str
    rows: dict[str, dict[str, str]]


def run_locust(folder: Path, url: str, **settings: str) -> Ended:
    """Runs a user of each kind for two seconds; settings are given in lower case without their prefix."""
    given = {f"DRAGOMAN_LOCUST_{name.upper()}": value for name, value in settings.items()}
    options = ["--headless", "--only-summary", "--csv", str(folder / "found"), "--host", url, *TWO_USERS]
    command = [sys.executable, "-m", "locust", "-f", str(FILE), *options, "RestUser", "GrpcUser"]
    ended = subprocess.run(command, env={**os.environ, **given}, cwd=ROOT, capture_output=True, text=True, check=False)
    found = folder / "found_stats.csv"
    rows = csv.DictReader(found.read_text(encoding="utf-8").splitlines()) if found.exists() else []
    return Ended(ended.returncode, ended.stderr, {row["Type"]: row for row in rows if row["Type"]})


def assert_both_are_answered(ended: Ended) -> None:
    assert ended.status == 0, ended.log
    assert set(ended.rows) == {"POST", "gRPC"}
    for row in ended.rows.values():
        assert row["Name"] == "translate (closed loop)"
        assert int(row["Request Count"]) > 0
        assert int(row["Failure Count"]) == 0


def test_users_of_both_interfaces_are_answered_and_labeled_closed_loop(live: LiveService, tmp_path: Path) -> None:
    ended = run_locust(tmp_path, live.http_url, grpc_target=live.grpc_target)
    assert_both_are_answered(ended)
    assert "closed loop: " in ended.log


def test_users_authenticate_with_certificate_and_key(bundle_path: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.issue("client", "somebody")
    closed: dict[str, Any] = {"tls_client_ca_file": authority.file, "api_keys": "a-key-of-the-tests"}
    with run_service(bundle_path, **authority.settings(), **closed) as live:
        ended = run_locust(
            tmp_path,
            f"https://127.0.0.1:{live.service.http_port}",
            grpc_target=live.grpc_target,
            api_key="a-key-of-the-tests",
            tls_ca_file=str(authority.file),
            tls_certificate_file=str(client["certificate"]),
            tls_key_file=str(client["key"]),
        )
    assert_both_are_answered(ended)
    assert "a-key-of-the-tests" not in ended.log
