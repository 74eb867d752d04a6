"""Import rules beyond the contracts of import-linter: serving runs without training libraries."""

import ast
import re
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

PACKAGES = (
    *(f"dragoman.{name}" for name in ("model", "export", "hub", "library", "serve", "protos", "loadtest")),
    *("benchmarks", "examples"),
)
TRAINING_LIBRARIES = ("torch", "lightning", "onnx", "onnxscript")
TORCH_FREE = (
    "dragoman.export.verify.command",  # imports the others only with a training run
    "dragoman.model.config",
    "dragoman.model.tokenizer.piece_tokenizer",
    "dragoman.model.tokenizer.tokenizer",
)


def module_path(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def folder_of(package: str) -> Path:
    return ROOT / package.replace(".", "/")


def find_modules(package: str) -> list[str]:
    files = [path for path in folder_of(package).rglob("*.py") if "_pb2" not in path.name]
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files)


MODULES = ["dragoman.command_line", *(module for package in PACKAGES for module in find_modules(package))]


def test_a_module_names_only_modules_that_exist() -> None:
    """A name may also be a function of a module."""
    exist = {*MODULES, *(name.rpartition(".")[0] for name in MODULES)}
    pattern = re.compile(rf"`((?:{'|'.join(PACKAGES)})\.[a-z0-9_.]*[a-z0-9_])(?:\.[A-Z]\w*)*`")
    unknown = {
        module: name
        for module in MODULES
        for name in pattern.findall(module_path(module).read_text(encoding="utf-8"))
        if name not in exist and name.rpartition(".")[0] not in MODULES
    }
    assert unknown == {}


def test_the_init_file_of_a_package_holds_a_docstring_and_nothing_else() -> None:
    for path in (path for package in PACKAGES for path in folder_of(package).rglob("__init__.py")):
        (statement,) = ast.parse(path.read_text(encoding="utf-8")).body
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Constant)
        assert isinstance(statement.value.value, str)


def test_everything_that_serves_is_importable_without_training_libraries() -> None:
    """No third-party module imports torch."""
    program = f"""
import importlib, sys
for name in {TRAINING_LIBRARIES}:
    sys.modules[name] = None
for name in {[*find_modules("dragoman.serve"), *TORCH_FREE]}:
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
