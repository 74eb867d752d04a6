"""Installs models by name: finds, downloads, converts and records them; an installed one needs no network."""

import re
import shutil
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from dragoman.hub.argos import find_package
from dragoman.hub.catalog import choose, find_installed, in_megabytes
from dragoman.hub.connection import NoConnectionError, OfflineError
from dragoman.hub.convert import PACKAGE_SUFFIX, ModelFiles, convert
from dragoman.hub.download import explain_space
from dragoman.hub.firefox import find_student
from dragoman.hub.licenses import describe_license
from dragoman.hub.names import (
    NO_LANGUAGES,
    ArgosModel,
    HubError,
    HubModel,
    LanguagePair,
    Languages,
    LocalModel,
    RepositoryModel,
    parse_name,
)
from dragoman.hub.offer import Offer
from dragoman.hub.progress import report
from dragoman.hub.repository import find_snapshot
from dragoman.hub.store import Installed, Store
from dragoman.serve.bundle.bundle import MANIFEST_FILE
from dragoman.serve.bundle.directions import directions_of
from dragoman.serve.bundle.manifest import is_model_name

MAX_MODEL_NAME_CHARACTERS = 64
# Libraries of the conversion, and the extra that has them.
NEEDED = ("onnx", "onnxruntime")
EXTRA = "cpu"
BRING = (
    "copy its bundle from a machine with network: `dragoman pull --to FOLDER {}` there, `dragoman serve FOLDER` here"
)
# Distinguishes the lock of an origin from that of a name: OWNER/NAME@COMMIT may be both.
DOWNLOAD = "download of "


def find_bundle(names: Sequence[str], *, offline: bool = False) -> Path:
    """Returns the folder to serve, and installs missing models unless `offline`; raises HubError if one is unusable."""
    store = Store.of_user()
    if len(names) == 1:
        reference = parse_name(names[0])
        if isinstance(reference, LocalModel) and reference.is_served_directly:
            return reference.path
        return store.bundle(install(store, names[0], offline=offline).key)
    bundles = dict[str, Path]()
    for name in names:
        for model, folder in _bundles(store, name, offline=offline):
            if model in bundles:
                raise HubError(f"{name}: another model has the name {model} too: serve one of them")
            bundles[model] = folder
    return store.link(bundles)


def _bundles(store: Store, name: str, *, offline: bool) -> Iterator[tuple[str, Path]]:
    """Yields the model and the bundle of a name, or those of a folder."""
    reference = parse_name(name)
    if isinstance(reference, LocalModel) and reference.is_served_directly:
        path = reference.path.resolve()
        manifests = [path / MANIFEST_FILE] if reference.is_bundle else sorted(path.glob(f"*/{MANIFEST_FILE}"))
        yield from ((manifest.parent.name, manifest.parent) for manifest in manifests)
    else:
        installed = install(store, name, offline=offline)
        yield installed.model, store.bundle(installed.key)


def install(
    store: Store, name: str, languages: Languages = NO_LANGUAGES, *, update: bool = False, offline: bool = False
) -> Installed:
    """Installs a model, or with `update` its current revision; raises HubError if that fails."""
    reference = parse_name(name)
    if isinstance(reference, LocalModel):
        if reference.is_served_directly:
            raise HubError(f"{reference.path}: already a bundle or a folder of bundles: serve it alone")
        path = reference.path.resolve()
        _check_libraries(str(path))
        return _convert(store, ModelFiles(path, _model_name(path.name), languages), str(path), str(path))
    # A pair and the model that is chosen for it are one model.
    found = find_installed(store, reference)
    if found is not None and not update:
        return found
    if offline:
        raise OfflineError(f"{name}: not installed, expected an installed model offline: `dragoman pull {name}`")
    try:
        return _install_remote(store, reference, languages, update=update)
    except OfflineError:
        if found is None:
            raise
        report(f"{name}: HF_HUB_OFFLINE is set, the installed bundle stays")
        return found
    except NoConnectionError as error:
        if found is not None:
            raise
        problem = f"{name}: not installed, and no connection: {error.reason}"
        raise HubError(f"{problem}: check the network, or {BRING.format(name)}") from error


def _install_remote(
    store: Store, reference: HubModel | LanguagePair, languages: Languages, *, update: bool
) -> Installed:
    model, problem = choose(store, reference) if isinstance(reference, LanguagePair) else (reference, "")
    with store.lock(str(model)):
        found = store.find(str(model))
        if found is not None and not update:
            return found
        offer = find_offer(store, model)
        if problem:
            report(problem)
        if found is not None and found.origin == offer.origin:
            report(f"{model}: the installed bundle is up to date")
            return found
        return _install_offer(store, model, offer, languages)


def _install_offer(store: Store, model: HubModel, offer: Offer, languages: Languages) -> Installed:
    _check_libraries(str(model))
    report(f"{model}: {describe_license(offer.license)}")
    folder = store.downloads(offer.origin)
    name = _model_name(model.repository if isinstance(model, RepositoryModel) else str(model))
    languages = offer.languages if languages == NO_LANGUAGES else languages
    # Another name may have the same origin: its pull uses the same folder.
    with store.lock(f"{DOWNLOAD}{offer.origin}"):
        path = offer.fetch(folder)
        try:
            files = ModelFiles(path, name, languages, offer.license, offer.facts)
            installed = _convert(store, files, str(model), offer.origin)
        except HubError:
            shutil.rmtree(folder, ignore_errors=True)  # the next pull must not find damaged files
            raise
        shutil.rmtree(folder)
    return installed


def find_offer(store: Store, model: HubModel) -> Offer:
    """Returns the current files of a model; raises HubError if its hub has none or does not answer."""
    if isinstance(model, RepositoryModel):
        return find_snapshot(model)
    return find_package(model) if isinstance(model, ArgosModel) else find_student(store, model)


def _convert(store: Store, source: ModelFiles, name: str, origin: str) -> Installed:
    with explain_space(store.folder, source.size_bytes):
        key, bundle = convert(store, source)
        size_bytes = sum(path.stat().st_size for path in bundle.folder.iterdir())
        directions = directions_of(bundle.manifest).summary()
        installed = Installed(
            name=name,
            model=source.model,
            origin=origin,
            license=source.license,
            key=key,
            directions=directions,
            size_bytes=size_bytes,
        )
        if store.find(name) != installed:
            store.record(installed)
            report(f"{name}: installed, {in_megabytes(size_bytes)}, {', '.join(directions)}")
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
