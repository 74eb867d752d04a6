"""`import dragoman` is quick and typed, and its names are those of `__all__`."""

import dragoman
from dragoman.library.aio import AsyncTranslator
from dragoman.library.blocking import Translator
from dragoman.serve.local.options import EngineSettings, RequestFields, SearchOptions
from dragoman.serve.search.option_table import OptionTable
from dragoman.serve.settings import ModelSettings
from dragoman.serve.translation.request import TranslateRequest
from tests.library.conftest import run_program
from tests.support.paths import ROOT

HEAVY = ("dragoman.serve", "grpc", "numpy", "onnxruntime", "pydantic")
# Imports take 30 ms on a quiet machine.
MAX_IMPORT_SECONDS = 0.15


def test_every_name_of_the_module_exists() -> None:
    assert all(getattr(dragoman, name) for name in dragoman.__all__)
    assert (dragoman.Translator, dragoman.AsyncTranslator) == (Translator, AsyncTranslator)
    assert dragoman.__all__ == sorted(name for names in dragoman._MODULES.values() for name in names)


def test_the_import_is_quick_and_loads_no_library() -> None:
    program = f"""
import sys, time
started = time.process_time()
import dragoman
print(time.process_time() - started)
print([name for name in {HEAVY} if name in sys.modules])
from dragoman import Translator
print("onnxruntime" in sys.modules, "grpc" in sys.modules)
"""
    seconds, *found = run_program(program).splitlines()
    assert found == ["[]", "False False"]
    assert float(seconds) < MAX_IMPORT_SECONDS


def test_the_package_is_typed() -> None:
    assert (ROOT / "dragoman" / "py.typed").is_file()


def test_the_keyword_arguments_are_the_options_of_a_server() -> None:
    assert list(SearchOptions.__annotations__) == list(OptionTable.model_fields)
    assert RequestFields.__annotations__.keys() < set(TranslateRequest._fields)
    assert EngineSettings.__annotations__.keys() < ModelSettings.model_fields.keys() | {"result_cache_bytes"}
