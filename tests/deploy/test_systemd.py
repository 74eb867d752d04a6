"""The unit of systemd: valid, confined, and consistent with the server."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dragoman.serve.settings import ServeSettings
from tests.support.paths import ROOT

ANALYZE = shutil.which("systemd-analyze")
UNIT = (ROOT / "deploy" / "systemd" / "dragoman.service").read_text(encoding="utf-8")


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze of Debian's package systemd")
@pytest.mark.parametrize("options", [["verify", "--man=no"], ["security", "--offline=true", "--threshold=20"]])
def test_the_unit_is_valid_and_its_exposure_is_at_most_two_of_ten(options: list[str], tmp_path: Path) -> None:
    unit = tmp_path / "dragoman.service"
    unit.write_text(UNIT.replace("/opt/dragoman/bin", str(Path(sys.executable).parent)))
    done = subprocess.run([str(ANALYZE), *options, unit], check=False, capture_output=True, encoding="utf-8")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""


def test_the_unit_sets_settings_of_the_server_and_waits_for_its_lame_duck_and_drain() -> None:
    fields = ServeSettings.model_fields
    names = {name.lower() for name in re.findall(r"DRAGOMAN_(\w+)=", UNIT)}
    assert names - {"cache"} <= fields.keys()
    allowed = fields["lame_duck_seconds"].default + fields["drain_seconds"].default
    assert int(re.findall(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)[0]) > allowed
