"""Who may import whom: the rules that keep serving free of torch and every layer ignorant of those above it.

The rules are read off the syntax trees, so an import inside a function counts as well.
"""

import ast
import re
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
        "model.text.text_tokenizer",
        "model.text.tokenizer",
        "protos",
    },
    "protos": set[str](),
    "loadtest": {"protos"},
}

# Single modules that may import more than their package.
EXCEPTIONS = {
    "export.verification.by_hand": {"serve.device.model_sessions", "serve.engine.scores"},
    "export.verification.examination": {
        "serve.device.device_choice",
        "serve.device.model_sessions",
        "serve.engine.sequence",
        "serve.search.options",
    },
    "export.verification.invariance": {"serve.search.options", "serve.device.model_sessions", "serve.engine.sequence"},
    "export.verification.verify": {"serve.device.device_choice"},
    "export.verification.stepped_engine": {
        "serve.engine.engine",
        "serve.device.model_sessions",
        "serve.metrics",
        "serve.engine.runtime",
        "serve.engine.scheduler",
        "serve.engine.sequence",
    },
    "export.inspection.inspect_bundle": {"serve.settings"},
    "export.inspection.inspection": {"serve.engine.runtime"},
    "export.evaluation.service_systems": {
        "serve.clients.channels",
        "serve.clients.client_errors",
        "serve.clients.grpc_client",
        "serve.clients.http_client",
        "serve.clients.lines",
        "serve.clients.local_translator",
        "serve.models.model_loader",
        "serve.translation.search_fields",
        "serve.clients.translate",
    },
    "export.evaluation.systems": {"serve.clients.channels"},
    "export.evaluation.evaluate": {"serve.clients.connection_options", "serve.interfaces.watched_files"},
    "loadtest.graphs.graph_options": {"model.config"},
    "loadtest.offline.offline_options": {"model.config"},
    "loadtest.compared.compared_model": {
        "export.exportable",
        "export.make_bundle",
        "export.manifest",
        "export.origin",
        "model.config",
        "model.data.corpus",
        "model.run",
        "model.text.tokenizer",
        "model.network.transformer",
    },
    "loadtest.offline.engine_translator": {
        "export.bundle",
        "serve.errors",
        "serve.logs",
        "serve.metrics",
        "serve.search.options",
        "serve.models.pipeline",
        "serve.engine.prefill",
        "serve.engine.runtime",
        "serve.engine.sequence",
        "serve.settings",
    },
    "loadtest.device.bench_device": {
        "export.inspection.stored_graph",
        "export.bundle",
        "export.origin",
        "export.verification.reader",
        "model.data.corpus",
        "model.report.provenance",
        "model.run",
        "model.text.tokenizer",
        "serve.device.device",
        "serve.device.device_choice",
        "serve.device.device_sessions",
        "serve.device.placement",
        "serve.device.gpus",
        "serve.device.model_sessions",
    },
    "loadtest.device.step_floor": {"export.inspection.stored_graph", "serve.device.model_sessions"},
    "loadtest.device.throughput": {
        "export.verification.stepped_engine",
        "model.decoding.generate",
        "model.network.translation_model",
        "serve.device.model_sessions",
        "serve.engine.sequence",
        "serve.search.options",
    },
    "loadtest.graphs.graph_benchmark": {
        "model.data.corpus",
        "model.report.provenance",
        "model.run",
        "model.text.tokenizer",
    },
    "loadtest.graphs.graph_comparison": {"model.scoring.bootstrap", "model.data.corpus"},
    "loadtest.graphs.graph_quality": {
        "export.bundle",
        "export.verification",
        "model.scoring.bootstrap",
        "model.data.corpus",
    },
    "loadtest.graphs.graph_results": {"model.scoring.bootstrap"},
    "loadtest.graphs.graph_systems": {"export.manifest"},
    "loadtest.scheduling.head_of_line": {
        "serve.cpus",
        "serve.engine.runtime",
        "serve.engine.sequence",
        "serve.settings",
    },
    "loadtest.scheduling.live_engines": {
        "serve.engine.engine",
        "serve.metrics",
        "serve.search.options",
        "serve.engine.runtime",
        "serve.engine.scheduler",
        "serve.engine.sequence",
    },
    "loadtest.load.chaos_command": {"serve.server_process"},
    "loadtest.load.clients": {"serve.clients.channels"},
    "loadtest.load.command": {"model.report.provenance", "serve.interfaces.watched_files"},
    "loadtest.load.grpc_clients": {"serve.clients.channels"},
    "loadtest.load.grpc_many_client": {"serve.clients.client_errors"},
    "loadtest.load.nginx": {"serve.server_process"},
    "loadtest.load.options": {"serve.clients.connection_options"},
    "loadtest.load.replicas": {"serve.clients.channels", "serve.server_process"},
    "loadtest.load.rest_clients": {"serve.clients.channels"},
    "loadtest.load.served_process": {"serve.server_process"},
    "loadtest.locust.locustfile": {"serve.clients.channels"},
    "loadtest.locust.settings": {"serve.clients.connection_options", "serve.interfaces.watched_files"},
    "loadtest.load.soak_command": {"serve.server_process"},
    "loadtest.load.search_options": {"serve.translation.search_fields"},
    "loadtest.compared.made_up_tokenizer": {"model.text.tokenizer"},
    "loadtest.scheduling.mode_comparison": {"serve.cpus"},
    "loadtest.compared.model_files": {"export.manifest"},
    "loadtest.offline.near_ties": {
        "model.data.batches",
        "model.decoding.beam",
        "model.decoding.generate",
        "model.network.translation_model",
    },
    "loadtest.offline.offline_benchmark": {
        "model.data.corpus",
        "model.report.provenance",
        "model.run",
        "model.text.tokenizer",
        "serve.cpus",
    },
    "loadtest.offline.offline_results": {"export.manifest"},
    "loadtest.offline.offline_sentences": {"model.data.corpus", "model.text.tokenizer"},
    "loadtest.compared.compute_type": {"export.manifest"},
    "loadtest.offline.offline_systems": {"export.manifest"},
    "loadtest.graphs.onnx_decoder": {"export.bundle", "serve.engine.runtime", "serve.search.greedy"},
    "loadtest.online.online_benchmark": {
        "export.bundle_tokenizer",
        "model.data.corpus",
        "model.report.provenance",
        "model.run",
        "model.text.tokenizer",
        "serve.server_process",
    },
    "loadtest.online.online_options": {"export.manifest"},
    "loadtest.online.online_systems": {"serve.server_process", "serve.settings"},
    "loadtest.online.peer_server": {"model.text.tokenizer"},
    "loadtest.peers.checkpoint": {
        "model.config",
        "model.network.positions",
        "model.text.tokenizer",
        "model.network.transformer",
    },
    "loadtest.peers.ctranslate2_model": {"model.network.attention", "model.network.transformer"},
    "loadtest.peers.pytorch_translator": {"model.decoding.generate"},
    "loadtest.peers.transformers_model": {"model.config", "model.network.transformer"},
    "loadtest.peers.generate_translator": {"model.data.batches"},
    "loadtest.scheduling.prefill_stalls": {
        "serve.cpus",
        "serve.metrics",
        "serve.engine.runtime",
        "serve.engine.sequence",
    },
    "loadtest.compared.random_shape": {"model.config"},
    "loadtest.comparison.report_files": {"model.report.marked_text", "model.report.provenance"},
    "loadtest.scheduling.scheduled_model": {
        "export.bundle",
        "export.manifest",
        "serve.search.options",
        "serve.engine.runtime",
    },
    "loadtest.scheduling.scheduling_benchmark": {
        "model.data.corpus",
        "model.report.provenance",
        "model.run",
        "model.text.tokenizer",
        "serve.cpus",
        "serve.errors",
    },
    "loadtest.scheduling.scheduling_options": {"export.manifest", "model.config"},
    "loadtest.replicas.busy_replicas": {"export.manifest", "serve.server_process"},
    "loadtest.replicas.replicas_benchmark": {
        "export.bundle",
        "model.data.corpus",
        "model.report.provenance",
        "model.text.tokenizer",
    },
    "loadtest.service.lone_clients": {"model.text.text_tokenizer"},
    "loadtest.service.service_benchmark": {
        "export.bundle",
        "model.data.corpus",
        "model.report.provenance",
        "model.text.tokenizer",
        "serve.errors",
        "serve.server_process",
    },
    "loadtest.service.service_options": {"serve.translation.search_fields"},
    "loadtest.service.service_sentences": {
        "export.bundle",
        "export.bundle_tokenizer",
        "export.manifest",
        "model.data.corpus",
        "model.text.text_tokenizer",
        "serve.search.options",
        "serve.translation.passage",
        "serve.translation.search_limits",
    },
    "loadtest.service.watched_server": {
        "serve.app",
        "serve.models.engine_models",
        "serve.server_process",
        "serve.settings",
    },
    "loadtest.profiling.steady_engine": {
        "serve.metrics",
        "serve.search.options",
        "serve.engine.runtime",
        "serve.engine.sequence",
    },
    "loadtest.profiling.step_profile": {
        "export.bundle",
        "export.manifest",
        "model.report.provenance",
        "serve.engine.runtime",
        "serve.settings",
    },
    "loadtest.scheduling.work_conservation": {"serve.cpus", "serve.settings"},
    "loadtest.profiling.watched_engine": {
        "serve.engine.engine",
        "serve.metrics",
        "serve.engine.runtime",
        "serve.engine.scheduler",
        "serve.engine.scores",
        "serve.engine.sequence",
    },
}

# Modules of `serve` that must stay ignorant of most others.
STRICT_MODULES = {
    "serve.errors": set[str](),
    "serve.translation.fields": {"serve.errors"},
    "serve.translation.search_fields": {"serve.translation.fields", "serve.search.options"},
    "serve.translation.search_limits": {
        "serve.errors",
        "serve.translation.fields",
        "serve.search.options",
        "serve.translation.search_fields",
        "serve.translation.target_vocabulary",
    },
    "serve.translation.target_vocabulary": set[str](),
    "serve.translation.request": {
        "serve.errors",
        "serve.translation.search_fields",
        "serve.translation.flow",
        "serve.translation.search_limits",
        "export.manifest",
    },
    "serve.translation.flow": set[str](),
    "serve.translation.doorway": {
        "serve.errors",
        "serve.engine.reservation",
        "serve.engine.scheduler",
        "serve.translation.flow",
    },
    "serve.translation.answer": {"serve.search.hypothesis"},
    "serve.engine.sequence": {"serve.errors", "serve.search.hypothesis", "serve.search.options"},
    "serve.engine.state_block": {"export.manifest"},
    "serve.engine.decoder_state": {"export.manifest", "serve.engine.state_block"},
    "serve.engine.onnx_runtime": {"export.bundle"},
    "serve.engine.runtime": {
        "serve.engine.decoder_state",
        "serve.engine.onnx_runtime",
        "serve.engine.row_bindings",
        "serve.engine.scores",
        "serve.engine.shared_weights",
        "export.bundle",
        "export.manifest",
    },
    "serve.engine.row_bindings": set[str](),
    "serve.engine.shared_weights": {"export.bundle", "serve.engine.onnx_runtime"},
    "serve.engine.scores": {"serve.search.greedy"},
    "serve.device.buckets": set[str](),
    "serve.device.capture_gate": set[str](),
    "serve.device.device": {"serve.device.capture_gate", "serve.engine.onnx_runtime"},
    "serve.device.device_choice": set[str](),
    "serve.device.device_tools": {"serve.device.device", "serve.engine.onnx_runtime"},
    "serve.device.device_scores": {"serve.device.device", "serve.device.device_tools"},
    "serve.device.device_state": {"export.manifest", "serve.device.device", "serve.device.device_tools"},
    "serve.device.gpus": set[str](),
    "serve.device.gpu_metrics": {"serve.device.gpus"},
    "serve.engine.flows": set[str](),
    "serve.engine.waiting": {"serve.errors", "serve.engine.flows", "serve.engine.sequence"},
    "serve.engine.running": {"serve.engine.sequence"},
    "serve.engine.pace": set[str](),
    "serve.engine.reservation": set[str](),
    "serve.engine.admission": {"serve.engine.pace", "serve.engine.running", "serve.engine.waiting", "serve.errors"},
    "serve.engine.scheduler": {
        "serve.engine.admission",
        "serve.engine.pace",
        "serve.engine.reservation",
        "serve.engine.sequence",
        "serve.errors",
        "serve.metrics",
        "serve.engine.running",
        "serve.engine.waiting",
    },
    "serve.engine.prefill": {"serve.engine.sequence"},
    "serve.traces": {"serve.engine.sequence"},
    "serve.translation.submission": {
        "serve.errors",
        "serve.engine.prefill",
        "serve.engine.reservation",
        "serve.engine.scheduler",
        "serve.engine.sequence",
        "serve.traces",
    },
    "serve.translation.text_stream": {"model.text.text_tokenizer"},
    "serve.clients.lines": set[str](),
    "serve.clients.wanted": {"serve.translation.search_fields"},
    "serve.clients.client_errors": set[str](),
    "serve.clients.service_config": set[str](),
    "serve.clients.channels": {"serve.clients.service_config"},
    "serve.clients.connection_options": {
        "serve.clients.channels",
        "serve.interfaces.watched_files",
        "serve.pem_files",
    },
    "serve.pem_files": {"serve.interfaces.watched_files"},
    "serve.clients.asking": {"serve.clients.client_errors", "serve.clients.wanted"},
    "serve.clients.client_messages": {
        "protos",
        "serve.clients.asking",
        "serve.search.hypothesis",
        "serve.translation.answer",
    },
    "serve.clients.many": {
        "protos",
        "serve.clients.asking",
        "serve.clients.client_errors",
        "serve.clients.client_messages",
        "serve.translation.answer",
    },
    "serve.clients.translation_client": {"protos", "serve.clients", "serve.translation.answer"},
    "serve.clients.async_translation_client": {"protos", "serve.clients", "serve.translation.answer"},
    "serve.clients.grpc_client": {
        "serve.clients.async_translation_client",
        "serve.clients.channels",
        "serve.clients.wanted",
        "serve.translation.answer",
    },
    "serve.clients.http_client": {
        "serve.clients.channels",
        "serve.clients.client_errors",
        "serve.clients.grpc_client",
        "serve.clients.wanted",
    },
}

# What others must not know, whatever else they import.
FORBIDDEN = {
    "serve.engine.flows": ("asyncio", "numpy"),
    "serve.engine.waiting": ("asyncio", "numpy"),
    "serve.engine.running": ("asyncio", "numpy"),
    "serve.engine.admission": ("asyncio", "numpy"),
    "serve.engine.scheduler": ("asyncio", "numpy"),
    "serve.engine.engine": (
        "asyncio",
        "protos",
        "serve.engine.onnx_runtime",
        "serve.engine.runtime",
        "serve.translation.translator",
    ),
    "serve.translation.translator": ("fastapi", "grpc", "protos", "serve.engine.runtime"),
    "serve.translation.answer_writer": ("fastapi", "grpc", "protos", "serve.engine.runtime", "serve.engine.scheduler"),
    "serve.translation.search_fields": ("fastapi", "grpc", "protos"),
    "serve.interfaces.open_inference": ("fastapi", "grpc", "protos", "serve.engine"),
    "serve.interfaces.open_inference_http": ("grpc", "protos", "serve.engine"),
    "serve.interfaces.open_inference_grpc": ("fastapi", "serve.engine"),
    "serve.interfaces.grpc_api": ("fastapi", "serve.engine.engine", "serve.engine.runtime", "serve.engine.scheduler"),
    "serve.interfaces.http_api": (
        "grpc",
        "protos",
        "serve.engine.engine",
        "serve.engine.runtime",
        "serve.engine.scheduler",
    ),
}

# Only these build services.
COMPOSERS = {
    "dragoman",
    "loadtest.service.watched_server",
    "serve.app",
    "serve.clients.local_translator",
    "serve.command",
    "serve.ray_serve.replica",
}

TORCH_FREE = (
    "export.bundle",
    "export.bundle_tokenizer",
    "export.manifest",
    "export.verification.verify",  # imports the rest where there is a training run
    "model.config",
    "model.text.piece_tokenizer",
    "model.text.text_tokenizer",
    "model.text.tokenizer",
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
def test_a_module_names_only_modules_that_there_are(module: str) -> None:
    """Who reads that something is called by another module finds it."""
    text = module_path(module).read_text(encoding="utf-8")
    named = re.findall(rf"`((?:{'|'.join(PACKAGES)})\.[a-z0-9_.]*[a-z0-9_])(?:\.[A-Z]\w*)*`", text)
    there_are = {*MODULES, *(name.rpartition(".")[0] for name in MODULES)}
    # What is named may also be a function of a module.
    assert {name for name in named if name not in there_are and name.rpartition(".")[0] not in MODULES} == set()


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


@pytest.mark.parametrize("module", find_modules("serve/search"))
def test_search_imports_nothing_of_ours_but_search(module: str) -> None:
    ours = {name for name in imports_of(module) if is_within(name, PACKAGES)}
    assert {name for name in ours if not is_within(name, ("serve.search",))} == set()


@pytest.mark.parametrize("module", FORBIDDEN)
def test_a_layer_knows_nothing_of_those_it_must_not_know(module: str) -> None:
    assert {name for name in imports_of(module) if is_within(name, FORBIDDEN[module])} == set()


def test_no_import_is_relative() -> None:
    """A relative import would pass by every rule here."""
    trees = {module: ast.parse(module_path(module).read_text(encoding="utf-8")) for module in MODULES}
    nodes = [(module, node) for module, tree in trees.items() for node in ast.walk(tree)]
    assert [module for module, node in nodes if isinstance(node, ast.ImportFrom) and node.level] == []


def test_only_one_module_imports_onnx_runtime() -> None:
    """Besides a rival that runs it too, and is told its threads in its words."""
    importers = {module for module in MODULES if any(is_within(name, ("onnxruntime",)) for name in imports_of(module))}
    assert importers == {"serve.engine.onnx_runtime", "loadtest.peers.optimum_translator"}


def test_only_the_application_of_ray_serve_imports_ray() -> None:
    importers = {module for module in MODULES if any(is_within(name, ("ray",)) for name in imports_of(module))}
    assert importers == {"serve.ray_serve.application"}


def test_nobody_but_composers_imports_the_composition_root() -> None:
    importers = {
        module
        for module in MODULES
        if any(is_within(name, ("serve.app", "serve.service")) for name in imports_of(module))
    }
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
