"""Gives the site the layout of the repository, so that a link leads to the same place on GitHub and in the site."""

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
MORE = ("README.md", "docs/site.css", "serve/page/static/icon.svg")
LINK = re.compile(r"\]\(([^)#\s]+)[^)\s]*\)")
GRPC = '---\nhide: [toc]\n---\n\n# gRPC reference\n\n```protobuf\n--8<-- "protos/translation.proto"\n```\n'
REFERENCES = {
    "docs/rest_reference.md": "[OAD(../tests/snapshots/data/openapi.json)]\n",
    "docs/grpc_reference.md": GRPC,
    "docs/python_reference.md": "# Python reference\n\n::: dragoman\n",
}


def site_files() -> set[str]:
    """Returns the start page, logo, colors, pages of `docs` and all that they link to, by their paths from the root."""
    waiting = [*(ROOT / "docs").rglob("*.md"), *(ROOT / name for name in MORE)]
    found = set[Path]()
    while waiting:
        found.add(page := waiting.pop())
        links = LINK.findall(page.read_text("utf-8")) if page.suffix == ".md" else ()
        targets = {(page.parent / link).resolve() for link in links if "://" not in link}
        waiting += [target for target in targets - found if target.is_file()]
    return {str(path.relative_to(ROOT)) for path in found}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of `docs` by those that belong to the site. The files of the theme stay."""
    options = (str(ROOT), config.site_dir, config.use_directory_urls)
    found = {name: File(name, *options) for name in sorted({*site_files(), *REFERENCES})}
    for name, text in REFERENCES.items():
        found[name].content_string = text
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *found.values()])
