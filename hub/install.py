"""Installs models by name: finds, downloads, converts and records them; an installed one needs no network."""

import re
import shutil
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from dragoman.hub.argos import Package, find_package
from dragoman.hub.connection import OfflineError
from dragoman.hub.convert import PACKAGE_SUFFIX, Languages, ModelFiles, convert
from dragoman.hub.download import explain_space
from dragoman.hub.licenses import describe_license
from dragoman.hub.names import ArgosModel, HubError, LocalModel, Reference, RepositoryModel, parse_name
from dragoman.hub.repository import Snapshot, find_snapshot
from dragoman.hub.store import Installed, Store
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.bundle.manifest import is_model_name

MAX_MODEL_NAME_CHARACTERS = 64
# Libraries of the conversion, and the extra that has them.
NEEDED = ("onnx", "onnxruntime")
EXTRA = "cpu"
NO_LANGUAGES = Languages()
# Distinguishes the lock of an origin from that of a name: OWNER/NAME@COMMIT may be both.
DOWNLOAD = "download of "


def find_bundle(names: Sequence[str]) -> Path:
    """Returns the folder to serve for names of models, installing missing ones; raises HubError if that fails."""
    store = Store.of_user()
    if len(names) == 1:
        reference = parse_name(names[0])
        if isinstance(reference, LocalModel) and reference.is_served_directly:
            return reference.path
        return store.bundle(install(store, names[0]).key)
    models = [install(store, name) for name in names]
    for number, model in enumerate(models):
        if any(model.model == other.model for other in models[:number]):
            raise HubError(f"{model.name}: another model has the name {model.model} too: serve one of them")
    return store.link(models)


def install(store: Store, name: str, languages: Languages = NO_LANGUAGES, *, update: bool = False) -> Installed:
    """Installs a model, unless it is installed; with `update`, looks for its current revision, unless offline.

    Raises:
        HubError: if the model cannot be found, downloaded or converted.
    """
    reference = parse_name(name)
    if isinstance(reference, LocalModel):
        return _install_local(store, reference, languages)
    # A pair and the model that the catalog names for it are one model.
    key = str(reference)
    found = store.find(key)
    if found is not None and not update:
        return found
    with store.lock(key):
        found = store.find(key)
        if found is not None and not update:
            return found
        return _install_remote(store, reference, languages, found)


def _install_local(store: Store, reference: LocalModel, languages: Languages) -> Installed:
    if reference.is_served_directly:
        raise HubError(f"{reference.path}: already a bundle or a folder of bundles: serve it alone")
    path = reference.path.resolve()
    return _convert(store, ModelFiles(path, _model_name(path.name), languages), str(path), str(path), None)


def _install_remote(store: Store, reference: Reference, languages: Languages, found: Installed | None) -> Installed:
    try:
        remote = _find(reference)
    except OfflineError:
        if found is None:
            raise
        print(f"{reference}: HF_HUB_OFFLINE is set, the installed bundle stays", flush=True)
        return found
    if found is not None and found.origin == remote.origin:
        print(f"{reference}: the installed bundle is up to date", flush=True)
        return found
    _check_libraries(str(reference))
    print(f"{reference}: {describe_license(remote.license)}", flush=True)
    folder = store.downloads(remote.origin)
    path = folder if isinstance(remote, Snapshot) else folder / remote.file.name
    model = _model_name(reference.repository if isinstance(reference, RepositoryModel) else str(reference))
    # Another name may have the same origin: its pull uses the same folder.
    with store.lock(f"{DOWNLOAD}{remote.origin}"):
        remote.fetch(folder)
        try:
            installed = _convert(
                store, ModelFiles(path, model, languages), str(reference), remote.origin, remote.license
            )
        except HubError:
            if isinstance(remote, Package):  # without a hash: the next pull must not find damaged files
                shutil.rmtree(folder, ignore_errors=True)
            raise
        shutil.rmtree(folder)
    return installed


def _find(reference: Reference) -> Snapshot | Package:
    if isinstance(reference, RepositoryModel):
        return find_snapshot(reference)
    if isinstance(reference, ArgosModel):
        return find_package(reference)
    raise TypeError(f"{reference}: expected a name of a hub")


def _convert(store: Store, source: ModelFiles, name: str, origin: str, license_name: str | None) -> Installed:
    _check_libraries(name)
    with explain_space(store.folder, source.size_bytes):
        key, bundle = convert(store, source)
        size_bytes = sum(path.stat().st_size for path in bundle.folder.iterdir())
        directions = directions_of(bundle.manifest).summary()
        installed = Installed(
            name=name,
            model=source.model,
            origin=origin,
            license=license_name,
            key=key,
            directions=directions,
            size_bytes=size_bytes,
        )
        if store.find(name) != installed:
            store.record(installed)
            print(f"{name}: installed, {size_bytes / 1e6:,.0f} MB, {', '.join(directions)}", flush=True)
    return installed


def _check_libraries(name: str) -> None:
    """Raises HubError before a download if the conversion would lack a library."""
    missing = [library for library in NEEDED if find_spec(library) is None]
    if missing:
        advice = f"pip install '.[{EXTRA}]', or pull it on another machine and copy its bundle"
        raise HubError(f"{name}: the conversion requires {', '.join(missing)}: {advice}")


def _model_name(text: str) -> str:
    """Returns the name of a model for a repository, a package or a path."""
    last = re.sub(r"[^A-Za-z0-9._-]+", "-", text.removesuffix(PACKAGE_SUFFIX).rpartition("/")[2])
    name = last.strip("-._")[:MAX_MODEL_NAME_CHARACTERS]
    return name if is_model_name(name) else "model"
