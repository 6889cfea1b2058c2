"""Adds to the site of docs/: README.md as its first page, and other pages and files that pages link to.

mkdocs calls `on_files` and `on_page_markdown`. Links in the pages are made for the repository. This module
turns each link to the page that shows the same file in the site.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
ROOT_PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
_BINARY = (".npz", ".npy")
"""The endings of files that are no text."""
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml"}


def on_files(files: Any, config: Any) -> Any:
    for origin, page in ROOT_PAGES.items():
        if (ROOT / origin).exists():
            files.append(File.generated(config, page, content=(ROOT / origin).read_text(encoding="utf-8")))
    pages = [file for file in files if file.src_uri.endswith(".md")]
    linked = {path for file in pages for path in _linked(file.content_string, _origin(file.src_uri))}
    for path in sorted(linked):
        if _page_of(path).startswith("source/"):
            files.append(File.generated(config, _page_of(path), content=_shown(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    here = page.file.src_uri
    if here.startswith("source/"):
        return markdown

    def turned(link: re.Match[str]) -> str:
        if ":" in link[1]:
            return link[0]
        path = normpath(f"{dirname(_origin(here))}/{link[1]}").removeprefix("/")
        return f"]({relpath(_page_of(path), dirname(here) or '.')}{link[2] or ''})"

    return _LINK.sub(turned, markdown)


def _origin(page: str) -> str:
    """The place in the repository that a page of the site comes from."""
    return next((origin for origin, name in ROOT_PAGES.items() if name == page), f"docs/{page}")


def _page_of(path: str) -> str:
    """The page that shows a file or folder of the repository."""
    if path in ROOT_PAGES:
        return ROOT_PAGES[path]
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}.md"


def _linked(markdown: str, origin: str) -> Iterator[str]:
    for target, _ in _LINK.findall(markdown):
        if ":" not in target:
            yield normpath(f"{dirname(origin)}/{target}").removeprefix("/")


def _shown(path: str) -> str:
    """A file's text, or a list of the files in a folder."""
    file = ROOT / path
    head = f"---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n\n# {path}\n\n"
    if file.is_dir():
        return head + "\n".join(map(_listed, sorted(file.glob("[!_.]*"))))
    if file.suffix in _BINARY:
        return f"{head}{file.stat().st_size:,} bytes that are no text."
    text = file.read_text(encoding="utf-8")
    return head + (
        text if file.suffix == ".md" else f"````{_LANGUAGES.get(file.suffix, 'text')}\n{text}\n````\n"
    )


def _listed(file: Path) -> str:
    """A file's name, and the first paragraph of a module's, or a package's, docstring."""
    module = file / "__init__.py" if file.is_dir() else file
    docstring = None
    if module.suffix == ".py" and module.exists():
        docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8")))
    return f"- `{file.name}`: " + (docstring or "").partition("\n\n")[0].replace("\n", " ")
