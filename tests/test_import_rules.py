"""Who may import whom: the rules that keep serving free of torch and every layer ignorant of those above it.

The rules are read off the syntax trees, so an import inside a function counts as well.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("model", "export", "serve", "protos", "loadtest")
TRAINING_LIBRARIES = ("torch", "lightning", "onnx", "onnxscript")

# Whole packages: what each may import of ours, beside itself.
PACKAGE_RULES = {
    "model": set[str](),
    "export": {"model"},
    "serve": {
        "export.bundle",
        "export.bundle_tokenizer",
        "export.manifest",
        "model.text_tokenizer",
        "model.tokenizer",
        "protos",
    },
    "protos": set[str](),
    "loadtest": {"protos"},
}

# Single modules that may import more than their package.
EXCEPTIONS = {
    "export.verification.by_hand": {"serve.runtime", "serve.search"},
    "export.verification.examination": {"serve.options", "serve.runtime", "serve.sequence"},
    "export.verification.invariance": {"serve.options", "serve.runtime", "serve.sequence"},
    "export.verification.stepped_engine": {
        "serve.engine",
        "serve.metrics",
        "serve.runtime",
        "serve.scheduler",
        "serve.sequence",
    },
    "export.inspect_bundle": {"serve.settings"},
    "export.inspection": {"serve.runtime"},
    "export.service_systems": {
        "serve.client",
        "serve.http_client",
        "serve.lines",
        "serve.local_translator",
        "serve.model_loader",
        "serve.search_fields",
        "serve.translate",
    },
    "loadtest.graph_options": {"model.config"},
    "loadtest.offline_options": {"model.config"},
    "loadtest.compared_model": {
        "export.exportable",
        "export.make_bundle",
        "export.manifest",
        "model.config",
        "model.corpus",
        "model.run",
        "model.tokenizer",
        "model.transformer",
    },
    "loadtest.engine_translator": {
        "export.bundle",
        "serve.errors",
        "serve.logs",
        "serve.metrics",
        "serve.options",
        "serve.pipeline",
        "serve.runtime",
        "serve.sequence",
        "serve.settings",
    },
    "loadtest.graph_benchmark": {"model.corpus", "model.report.provenance", "model.run", "model.tokenizer"},
    "loadtest.graph_comparison": {"model.bootstrap", "model.corpus"},
    "loadtest.graph_quality": {"export.bundle", "export.verification", "model.bootstrap", "model.corpus"},
    "loadtest.graph_results": {"model.bootstrap"},
    "loadtest.graph_systems": {"export.manifest"},
    "loadtest.head_of_line": {"serve.cpus", "serve.runtime", "serve.sequence", "serve.settings"},
    "loadtest.live_engines": {
        "serve.engine",
        "serve.metrics",
        "serve.options",
        "serve.runtime",
        "serve.scheduler",
        "serve.sequence",
    },
    "loadtest.made_up_tokenizer": {"model.tokenizer"},
    "loadtest.mode_comparison": {"serve.cpus"},
    "loadtest.model_files": {"export.manifest"},
    "loadtest.near_ties": {"model.batches", "model.beam", "model.generate", "model.translation_model"},
    "loadtest.offline_benchmark": {
        "model.corpus",
        "model.report.provenance",
        "model.run",
        "model.tokenizer",
        "serve.cpus",
    },
    "loadtest.offline_results": {"export.manifest"},
    "loadtest.offline_sentences": {"model.corpus", "model.tokenizer"},
    "loadtest.offline_systems": {"export.manifest"},
    "loadtest.onnx_decoder": {"export.bundle", "serve.runtime", "serve.search"},
    "loadtest.peers.checkpoint": {"model.config", "model.positions", "model.tokenizer", "model.transformer"},
    "loadtest.peers.ctranslate2_model": {"model.attention", "model.transformer"},
    "loadtest.peers.pytorch_translator": {"model.generate"},
    "loadtest.peers.transformers_model": {"model.config", "model.transformer"},
    "loadtest.peers.transformers_translator": {"model.batches"},
    "loadtest.prefill_stalls": {"serve.cpus", "serve.metrics", "serve.runtime", "serve.sequence"},
    "loadtest.random_shape": {"model.config"},
    "loadtest.report_files": {"model.report.marked_text", "model.report.provenance"},
    "loadtest.scheduled_model": {"export.bundle", "export.manifest", "serve.options", "serve.runtime"},
    "loadtest.scheduling_benchmark": {
        "model.corpus",
        "model.report.provenance",
        "model.run",
        "model.tokenizer",
        "serve.cpus",
        "serve.errors",
    },
    "loadtest.scheduling_options": {"export.manifest", "model.config"},
    "loadtest.steady_engine": {"serve.metrics", "serve.options", "serve.runtime", "serve.sequence"},
    "loadtest.step_profile": {
        "export.bundle",
        "export.manifest",
        "model.report.provenance",
        "serve.runtime",
        "serve.settings",
    },
    "loadtest.work_conservation": {"serve.cpus", "serve.settings"},
    "loadtest.watched_engine": {"serve.engine", "serve.metrics", "serve.runtime", "serve.scheduler", "serve.sequence"},
}

# Modules of `serve` that must stay ignorant of most others.
STRICT_MODULES = {
    "serve.errors": set[str](),
    "serve.fields": {"serve.errors"},
    "serve.search_fields": {"serve.fields", "serve.options"},
    "serve.search_limits": {
        "serve.errors",
        "serve.fields",
        "serve.options",
        "serve.search_fields",
        "serve.target_vocabulary",
    },
    "serve.target_vocabulary": set[str](),
    "serve.request": {"serve.errors", "serve.search_fields", "serve.search_limits", "export.manifest"},
    "serve.answer": {"serve.request"},
    "serve.options": set[str](),
    "serve.hypothesis": {"serve.request"},
    "serve.sequence": {"serve.errors", "serve.hypothesis", "serve.options"},
    "serve.search": {"serve.request"},
    "serve.constraints": set[str](),
    "serve.beam": set[str](),
    "serve.ranking": set[str](),
    "serve.sampling": set[str](),
    "serve.decoder_state": {"export.manifest"},
    "serve.runtime": {"serve.decoder_state", "export.bundle", "export.manifest"},
    "serve.flows": set[str](),
    "serve.waiting": {"serve.errors", "serve.flows", "serve.sequence"},
    "serve.running": {"serve.sequence"},
    "serve.scheduler": {"serve.sequence", "serve.errors", "serve.metrics", "serve.running", "serve.waiting"},
    "serve.prefill": {"serve.sequence"},
    "serve.submission": {"serve.errors", "serve.scheduler", "serve.sequence"},
    "serve.text_stream": {"model.text_tokenizer"},
    "serve.lines": set[str](),
    "serve.wanted": {"serve.search_fields"},
    "serve.client": {"protos", "serve.wanted"},
    "serve.http_client": {"serve.client", "serve.wanted"},
}

# What others must not know, whatever else they import.
FORBIDDEN = {
    "serve.flows": ("asyncio", "numpy"),
    "serve.waiting": ("asyncio", "numpy"),
    "serve.running": ("asyncio", "numpy"),
    "serve.scheduler": ("asyncio", "numpy"),
    "serve.engine": ("asyncio", "protos", "serve.runtime", "serve.translator"),
    "serve.translator": ("fastapi", "grpc", "protos", "serve.runtime"),
    "serve.answer_writer": ("fastapi", "grpc", "protos", "serve.runtime", "serve.scheduler"),
    "serve.search_fields": ("fastapi", "grpc", "protos"),
    "serve.grpc_api": ("fastapi", "serve.engine", "serve.runtime", "serve.scheduler"),
    "serve.http_api": ("grpc", "protos", "serve.engine", "serve.runtime", "serve.scheduler"),
}

# Only these build services.
COMPOSERS = {"dragoman", "serve.local_translator", "serve.settings"}

TORCH_FREE = (
    "export.bundle",
    "export.bundle_tokenizer",
    "export.manifest",
    "export.verify",  # imports the rest where there is a training run
    "model.config",
    "model.piece_tokenizer",
    "model.text_tokenizer",
    "model.tokenizer",
)


def module_path(module: str) -> Path:
    return ROOT / f"{module.replace('.', '/')}.py"


def find_modules(package: str) -> list[str]:
    files = [path for path in (ROOT / package).rglob("*.py") if "_pb2" not in path.name]
    return sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files)


MODULES = ["dragoman", *(module for package in PACKAGES for module in find_modules(package))]


def find_imports(tree: ast.AST) -> Iterator[str]:
    """Yields every imported name, as `package.module.name` if it is imported from a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imports_of(module: str) -> set[str]:
    return set(find_imports(ast.parse(module_path(module).read_text(encoding="utf-8"))))


def is_within(name: str, modules: set[str] | tuple[str, ...]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_package_may(module: str) -> None:
    package = module.partition(".")[0]
    allowed = PACKAGE_RULES.get(package, set()) | EXCEPTIONS.get(module, set()) | {package}
    ours = {name for name in imports_of(module) if is_within(name, PACKAGES)}
    assert {name for name in ours if not is_within(name, allowed)} == set()


@pytest.mark.parametrize("module", STRICT_MODULES)
def test_a_strict_module_imports_only_what_it_may(module: str) -> None:
    ours = {name for name in imports_of(module) if is_within(name, PACKAGES)}
    assert {name for name in ours if not is_within(name, STRICT_MODULES[module])} == set()


@pytest.mark.parametrize("module", FORBIDDEN)
def test_a_layer_knows_nothing_of_those_it_must_not_know(module: str) -> None:
    assert {name for name in imports_of(module) if is_within(name, FORBIDDEN[module])} == set()


def test_no_import_is_relative() -> None:
    """A relative import would pass by every rule here."""
    trees = {module: ast.parse(module_path(module).read_text(encoding="utf-8")) for module in MODULES}
    nodes = [(module, node) for module, tree in trees.items() for node in ast.walk(tree)]
    assert [module for module, node in nodes if isinstance(node, ast.ImportFrom) and node.level] == []


def test_only_the_runtime_imports_onnx_runtime() -> None:
    importers = {module for module in MODULES if any(is_within(name, ("onnxruntime",)) for name in imports_of(module))}
    assert importers <= {"serve.runtime"}


def test_nobody_but_composers_imports_the_composition_root() -> None:
    importers = {module for module in MODULES if any(is_within(name, ("serve.app",)) for name in imports_of(module))}
    assert importers <= COMPOSERS


@pytest.mark.parametrize("module", [*find_modules("serve"), *TORCH_FREE])
def test_what_serves_imports_no_training_library(module: str) -> None:
    assert {name for name in imports_of(module) if is_within(name, TRAINING_LIBRARIES)} == set()


@pytest.mark.parametrize("package", PACKAGES)
def test_the_init_file_of_a_package_holds_a_docstring_and_nothing_else(package: str) -> None:
    for path in (ROOT / package).rglob("__init__.py"):
        (statement,) = ast.parse(path.read_text(encoding="utf-8")).body
        assert isinstance(statement, ast.Expr)
        assert isinstance(statement.value, ast.Constant)
        assert isinstance(statement.value.value, str)


def test_no_module_is_named_like_one_of_the_standard_library() -> None:
    assert [module for module in MODULES if module.rpartition(".")[2] in sys.stdlib_module_names - {"__init__"}] == []


def test_everything_that_serves_is_importable_without_training_libraries() -> None:
    """The syntax trees show direct imports; this shows that no third module brings torch in."""
    program = f"""
import importlib, sys
for name in {TRAINING_LIBRARIES}:
    sys.modules[name] = None
for name in {[*find_modules("serve"), *TORCH_FREE]}:
    importlib.import_module(name)
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)


def test_the_rules_see_an_import_inside_a_function() -> None:
    assert list(find_imports(ast.parse("def f():\n    from serve.app import build"))) == ["serve.app.build"]
