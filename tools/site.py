"""The site: README and DESIGN enter it as pages, links reach them there, and the API has a page.

mkdocs takes this file twice: as its hook, and as an extension of griffe, which reads docstrings.
"""

import re
from pathlib import Path
from typing import Any

from griffe import Extension, Object
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import specfleet

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "index.md", "DESIGN.md": "DESIGN.md", "CONTRIBUTING.md": "CONTRIBUTING.md"}
NAMES = sorted(set(specfleet.__all__) - {"__version__"})
API = f"# Python API\n\n::: specfleet\n    options: {{members: [{', '.join(NAMES)}]}}\n"
EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^[^\S\n]*\S.*\n?)*)+", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add what lies outside docs/."""
    for source, name in PAGES.items():
        text = re.sub(r"\]\((docs/)?([^)]*)\)", _inside, (ROOT / source).read_text())
        files.append(File.generated(config, name, content=text))
    files.append(File.generated(config, "api.md", content=API))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Bring links that leave docs/ to the pages that stand for them; brackets of options are no links."""
    up = "../" * page.file.src_uri.count("/")
    for source, name in PAGES.items():
        markdown = markdown.replace(f"]({up}../{source}", f"]({up}{name}")
    return markdown.replace("][", "]\\[")


def _inside(link: re.Match[str]) -> str:
    folder, target = link.groups()
    return f"]({target})" if folder or target.startswith(("http", "#")) else f"]({PAGES.get(target, target)})"


class Examples(Extension):
    """Docstrings with their examples in blocks of code."""

    def on_object(self, *, obj: Object, **kwargs: Any) -> None:
        """Fence the examples of a docstring."""
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda lines: f"```python\n{lines[0].rstrip()}\n```\n", obj.docstring.value
            )
