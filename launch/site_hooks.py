"""Fit the repository's pages into the documentation site.

Pages link to one another as files of the repository, so that they can be read there. The site holds the pages of
`docs/`, a few more, a page for each task's fields, and one for each entry of the reference, so that none is large; a
link to any other file becomes plain text. The word `no-run` after a fence is for the tests of the pages; MkDocs would
not recognise such a block as code.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import rlenv_robot
from rlenv_kit.protocol_page import protocol_document

ROOT = Path(__file__).resolve().parents[1]
ADDED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
    "README.md": "README.md",
}
"""Page outside `docs/` -> page of the site with the same content."""

LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
ENTRY = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)
"""An entry of a page of the reference: a name whose docstrings become a page."""
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside `docs/`, and a page for each task's fields, like that of `rlenv-robot protocol`."""
    for name in rlenv_robot.environment_names():
        with rlenv_robot.make(name) as env:
            files.append(File.generated(config, f"protocol/{name}.md", content=protocol_document(env, name)))
    for file in [file for file in files if re.fullmatch(r"reference/\w+\.md", file.src_uri)]:
        for name in ENTRY.findall(Path(str(file.abs_src_path)).read_text(encoding="utf-8")):
            place = f"{file.src_uri.removesuffix('.md')}/{name}.md"
            entry = f"---\ntitle: {name}\n---\n\n::: {name}\n    options:\n      heading_level: 1\n"
            files.append(File.generated(config, place, content=entry))
    for source, page in ADDED.items():
        if page != source:
            text = (ROOT / source).read_text(encoding="utf-8")
            files.append(File.generated(config, page, content=rewrite(text, source, page)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn links that leave `docs/` into links within the site, or into text."""
    name = page.file.src_uri
    if re.fullmatch(r"reference/\w+\.md", name):
        folder = Path(name).stem
        markdown = re.sub(r"\n+(?=- )", "\n", ENTRY.sub(rf"- [`\1`]({folder}/\1.md)", markdown))
        markdown = re.sub(r"^(?!- )(.+)\n(?=- )", r"\1\n\n", markdown, flags=re.MULTILINE)
    return markdown if name in ADDED.values() and name != "README.md" else rewrite(markdown, f"docs/{name}", name)


def rewrite(markdown: str, source: str, page: str) -> str:
    """Return a page's text with its links rewritten for the site.

    Args:
        markdown: the page's text.
        source: the page's file, relative to the repository's root.
        page: the page's path in the site.
    """

    def target_of(link: str) -> str | None:
        path, _, anchor = link.partition("#")
        if not path or re.match(r"[a-z]+:", link):
            return link
        file = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        place = ADDED.get(file) or (file.removeprefix("docs/") if file.startswith("docs/") else None)
        if place is None:
            return None if (ROOT / file).exists() else link  # MkDocs reports what leads nowhere
        if (ROOT / file).is_dir():
            place = f"{place}/README.md"
        relative = posixpath.relpath(place, posixpath.dirname(page) or ".")
        return f"{relative}#{anchor}" if anchor else relative

    def link(match: re.Match[str]) -> str:
        target = target_of(match[2])
        return match[1] if target is None else f"[{match[1]}]({target})"

    def text(part: str) -> str:
        return IMAGE.sub(lambda match: f"!{link(match)}", LINK.sub(link, part))

    parts = re.split(r"(^```.*?^```[^\n]*$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(
        part.replace("```python no-run", "```python") if part.startswith("```") else text(part) for part in parts
    )
