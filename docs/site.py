"""Gives the site the layout of the repository, so that a link leads to the same place on GitHub and in the site."""

import json
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
MORE = ("README.md", "docs/site.css", "serve/page/static/icon.svg")
LINK = re.compile(r"\]\(([^)#\s]+)[^)\s]*\)")
GRPC = '---\nhide: [toc]\n---\n\n# gRPC reference\n\n```protobuf\n--8<-- "protos/translation.proto"\n```\n'
REFERENCES = {
    "docs/rest_reference.md": "[Bodies of errors](api.md#errors)\n\n[OAD(../build/rest_reference.json)]\n",
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


def write_rest_reference() -> None:
    """Writes the description of REST for the site: the errors of a route are a list, without the body of each."""
    described = json.loads((ROOT / "tests/snapshots/data/openapi.json").read_text("utf-8"))
    for operation in (operation for methods in described["paths"].values() for operation in methods.values()):
        answers = operation["responses"]
        errors = [f"- {status}: {answers.pop(status)['description']}" for status in [*answers] if status >= "400"]
        operation["description"] = "\n".join([operation.get("description", ""), "", "Errors:", "", *errors])
    (ROOT / "build").mkdir(exist_ok=True)
    (ROOT / "build/rest_reference.json").write_text(json.dumps(described), "utf-8")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the files of `docs` by those that belong to the site. The files of the theme stay."""
    write_rest_reference()
    options = (str(ROOT), config.site_dir, config.use_directory_urls)
    found = {name: File(name, *options) for name in sorted({*site_files(), *REFERENCES})}
    for name, text in REFERENCES.items():
        found[name].content_string = text
    return Files([*(file for file in files if file.src_dir != config.docs_dir), *found.values()])
