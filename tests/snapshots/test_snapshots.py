"""The interfaces of the service equal their snapshots: REST, gRPC, metrics, errors, settings and the bundle format."""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import CollectorRegistry

from dragoman.protos.inference_pb2 import DESCRIPTOR as INFERENCE
from dragoman.protos.translation_pb2 import DESCRIPTOR as TRANSLATION
from dragoman.serve.bundle.manifest import Manifest
from dragoman.serve.commands.serve import ServeCommand
from dragoman.serve.errors import ERRORS
from dragoman.serve.runtime.driver import Gpu, GpuCollector
from dragoman.serve.settings import ModelSettings, ServeSettings
from tests.snapshots.snapshot import check
from tests.support.live import LiveService, run_service
from tests.support.paths import ROOT

OURS = "dragoman_"
# Labels whose values depend on the deployment.
OPEN_LABELS = frozenset(
    {"directions", "gpu", "model", "onnxruntime", "opset", "precision", "python", "version", "weights_sha256"}
)


@pytest.fixture(scope="module")
def served(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    """A service with every optional part of its interfaces."""
    with run_service(bundle_path, admin_key="k", state_dir=tmp_path_factory.mktemp("dir"), key_metrics=True) as service:
        yield service


def as_json(document: object) -> str:
    return json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)


def test_the_openapi_document_equals_its_snapshot(served: LiveService) -> None:
    check("openapi.json", as_json(served.get("/openapi.json").json()))


def describe_family(family: Metric) -> Iterator[str]:
    """Yields the line of a metric and, for our metrics, a line with the values of each closed label."""
    values: dict[str, dict[str, None]] = {}
    for sample in family.samples:
        for label, value in sample.labels.items():
            values.setdefault(label, {})[value] = None
    suffix = "_total" if family.type == "counter" else ""
    ours = family.name.startswith(OURS)
    labels = ", ".join(label for label in sorted(values) if label != "le")
    yield f"{family.name}{suffix} {family.type} {{{labels}}} {family.documentation if ours else ''}".rstrip()
    for label in sorted(values.keys() - OPEN_LABELS) if ours else ():
        shown = values[label] if label == "le" else sorted(values[label])
        yield f"  {label}: {', '.join(shown)}"


def describe(families: Iterable[Metric]) -> list[str]:
    return [line for family in sorted(families, key=lambda family: family.name) for line in describe_family(family)]


def gpu_families(monkeypatch: pytest.MonkeyPatch) -> list[Metric]:
    monkeypatch.setattr(sys.modules[GpuCollector.__module__], "gpus", lambda: [Gpu("fake", 2, 1)])
    registry = CollectorRegistry()
    registry.register(GpuCollector())
    return list(registry.collect())


def test_the_metrics_equal_their_snapshot(served: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    families = [*text_string_to_metric_families(served.get("/metrics").text), *gpu_families(monkeypatch)]
    check("metrics.txt", "\n".join(describe(families)))


def test_the_contracts_equal_their_snapshot() -> None:
    files = FileDescriptorProto(), FileDescriptorProto()
    for file, descriptor in zip(files, (TRANSLATION, INFERENCE), strict=True):
        descriptor.CopyToProto(file)
    text = "\n".join(map(str, files))
    # A line for each field, value and method.
    check("protos.txt", re.sub(r"\{\s([^{}]*)\}", lambda match: f"{{ {' '.join(match[1].split())} }}", text))


def test_the_errors_equal_their_snapshot() -> None:
    rows = [("reason", "gRPC", "HTTP", "retry after seconds", "field")]
    for error in ERRORS:
        retry = "-" if error.retry_after_seconds is None else str(error.retry_after_seconds)
        rows.append((error.reason, error.grpc_status, str(int(error.http_status)), retry, error.field or "-"))
    check("errors.txt", "\n".join(" | ".join(row) for row in rows))


def without_descriptions(schema: Any) -> Any:
    """Returns a schema without descriptions, which come from docstrings."""
    if isinstance(schema, list):
        return [without_descriptions(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: without_descriptions(value)
        for name, value in schema.items()
        if not (name == "description" and isinstance(value, str))
    }


def test_the_schema_of_the_manifest_equals_its_snapshot() -> None:
    check("manifest_schema.json", as_json(without_descriptions(Manifest.model_json_schema())))


def type_name(annotation: Any) -> str:
    """Returns a type without the names of modules."""
    text = annotation.__name__ if isinstance(annotation, type) and not hasattr(annotation, "__args__") else annotation
    return re.sub(r"\b(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", str(text))


def test_the_settings_equal_their_snapshot() -> None:
    prefix = ServeCommand.model_config.get("env_prefix", "")
    in_file = ServeSettings.model_fields.keys() - {"config"}
    lines = []
    for name, field in sorted(ServeCommand.model_fields.items()):
        default = repr(field.get_default(call_default_factory=True)).replace(str(ROOT), "ROOT")
        limits = [item for item in map(repr, field.metadata) if not item.startswith("<class ")]
        lines += [
            name,
            f"  type: {type_name(field.annotation)}",
            f"  default: {default}",
            f"  limits: {', '.join(limits) or '-'}",
            f"  environment: {prefix}{name.upper()}",
            f"  file: {name if name in in_file else '-'}",
            f"  file, of one model: {f'models.NAME.{name}' if name in ModelSettings.model_fields else '-'}",
        ]
    check("settings.txt", "\n".join(lines))
