"""The paths of files: the page at `/`, and the page of the API documentation at `/docs` with what it loads.

No file comes from elsewhere, so both pages work without a network.
"""

from dataclasses import dataclass

from dragoman.serve.page.assets import Asset, find_assets

ROOT = "/"
DOCS_PATH = "/docs"
_INDEX = "index.html"


@dataclass(frozen=True, slots=True)
class StaticFiles:
    """The files by path, and those paths that need no key: they hold no secret, and a page asks for the key itself."""

    files: dict[str, Asset]
    open_paths: frozenset[str]


def build_static(*, page: bool) -> StaticFiles:
    """Returns the files of the documentation and, if `page`, of the page."""
    assets = {f"{DOCS_PATH}/{name}": asset for name, asset in find_assets("fastapi_swagger", "resources").items()}
    assets |= {f"{DOCS_PATH}/{name}": asset for name, asset in find_assets("dragoman.serve.page", "docs").items()}
    if page:
        assets |= {f"/page/{name}": asset for name, asset in find_assets("dragoman.serve.page", "static").items()}
        assets[ROOT] = assets.pop(f"/page/{_INDEX}")
    # The documentation is as open as the document that it shows.
    documentation = assets.pop(f"{DOCS_PATH}/{_INDEX}")
    return StaticFiles({**assets, DOCS_PATH: documentation}, frozenset(assets))
