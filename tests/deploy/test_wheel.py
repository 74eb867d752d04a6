"""The files of the wheel, built from this tree; `deploy/release_test.sh` installs and serves it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
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


def test_every_module_and_all_data_of_the_packages_are_in_the_wheel(wheel: ZipFile) -> None:
    suffixes = (".py", ".json", ".proto", ".svg", ".tsv", ".txt", ".typed", ".yaml")
    package = ROOT / "dragoman"
    folders = (package, *(path for path in package.iterdir() if path.is_dir() and path.name != "bundles"))
    files = {path.relative_to(ROOT).as_posix() for folder in folders for path in folder.rglob("*")}
    packed = {name for name in wheel.namelist() if not name.startswith(("dragoman/bundles/", "dragoman-"))}
    assert {name for name in files if name.endswith(suffixes)} == {name for name in packed if name.endswith(suffixes)}


def test_the_wheel_holds_no_tests_and_no_caches(wheel: ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist() if ".dist-info/" not in name}
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert tops <= set(included["only-include"])
    assert not [name for name in wheel.namelist() if "__pycache__" in name]


def test_the_included_model_is_the_only_bundle_of_the_wheel(wheel: ZipFile) -> None:
    bundles = {name.split("/")[2] for name in wheel.namelist() if name.startswith("dragoman/bundles/")}
    assert bundles == {"README.md", "included"}


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


@pytest.fixture(scope="module")
def installed(wheel: ZipFile, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed wheel, like site-packages."""
    folder = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(folder)]
    subprocess.run([*command, str(wheel.filename)], check=True)
    return folder


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with modules named as folders of the repository; each holds its owner."""
    for name in ("model", "export", "hub", "protos", "loadtest", "bundles"):
        (tmp_path / f"{name}.py").write_text("OWNER = 'the project'\n")
    (tmp_path / "serve").mkdir()
    (tmp_path / "serve" / "__init__.py").write_text("OWNER = 'the project'\n")
    return tmp_path


def run(installed: Path, project: Path, *arguments: str) -> str:
    """Returns what Python prints in the folder of the project."""
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True, text=True).stdout


def test_the_wheel_installs_one_name(installed: Path) -> None:
    assert {path.name for path in installed.iterdir()} - {"bin"} == {"dragoman", "dragoman-0.1.0.dist-info"}


def test_modules_of_a_project_and_of_the_wheel_do_not_hide_each_other(installed: Path, project: Path) -> None:
    program = """
import bundles, export, hub, loadtest, model, protos, serve
import dragoman
from dragoman import TranslationClient
assert {module.OWNER for module in (bundles, export, hub, loadtest, model, protos, serve)} == {"the project"}
print(dragoman.__file__, TranslationClient.__module__)
"""
    printed = run(installed, project, "-c", program)
    assert printed == f"{installed}/dragoman/__init__.py dragoman.serve.clients.client\n"


def test_the_command_of_the_wheel_translates_in_the_folder_of_such_a_project(installed: Path, project: Path) -> None:
    (project / "page.html").write_text("<p>Please <b>close</b> the door.</p>")
    bundle = installed / "dragoman" / "bundles" / "included"
    run(installed, project, "-m", "dragoman", "translate", "--bundle", str(bundle), "--target-language=de", "page.html")
    translated = (project / "page.de.html").read_text()
    assert translated.startswith("<p>")
    assert translated != (project / "page.html").read_text()
