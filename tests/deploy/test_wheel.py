"""The files of the wheel, built from this tree; `deploy/release_test.sh` installs and serves it."""

import subprocess
import sys
import tomllib
from zipfile import ZipFile

import pytest

from dragoman.serve.native.build import find_compiler
from tests.support.paths import ROOT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return ZipFile(path)


def test_every_module_of_the_packages_is_in_the_wheel(wheel: ZipFile) -> None:
    folders = (ROOT / "dragoman", *(path for path in (ROOT / "dragoman").iterdir() if path.is_dir()))
    modules = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.rglob("*.py")}
    assert modules == {name for name in wheel.namelist() if name.endswith(".py")}


def test_data_of_the_packages_are_in_the_wheel(wheel: ZipFile) -> None:
    package = ROOT / "dragoman"
    folders = (package / "model/recipes", package / "loadtest/scenarios", package / "export/imports/sentences")
    files = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.iterdir() if path.is_file()}
    assert files
    single = {
        "dragoman/hub/catalog.json",
        "dragoman/protos/translation.proto",
        "dragoman/loadtest/protocols.yaml",
        "dragoman/model/demo/lexicon.yaml",
        "dragoman/model/demo/sentences.yaml",
    }
    assert {*files, *single} <= set(wheel.namelist())


def test_the_wheel_holds_no_tests_and_no_caches(wheel: ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert tops <= set(included["only-include"])
    assert not [name for name in wheel.namelist() if "__pycache__" in name]


def test_the_wheel_holds_the_license(wheel: ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/licenses/LICENSE"))
    assert wheel.read(name) == (ROOT / "LICENSE").read_bytes()


@pytest.mark.skipif(find_compiler() is None, reason="needs a C++ compiler")
def test_the_wheel_holds_the_native_library_for_this_platform_and_any_python(wheel: ZipFile) -> None:
    assert "dragoman/serve/native/libdragoman.so" in wheel.namelist()
    assert not [name for name in wheel.namelist() if name.endswith((".cpp", ".hpp", ".o"))]
    assert wheel.filename is not None
    python, abi, platform = wheel.filename.removesuffix(".whl").split("-")[-3:]
    assert (python, abi) == ("py3", "none")
    assert platform.startswith(("linux_", "macosx_"))
