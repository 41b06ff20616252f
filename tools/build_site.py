"""Builds the documentation's site in build/site: ``make docs``.

MkDocs reads build/docs/pages: docs, and what they link to in the rest of the repository, with links that fit.
In the built pages equations become MathML, which browsers draw without scripts. No step needs the network.
``tools/check_site.py`` checks the result.
"""

from __future__ import annotations

import html
import os
import posixpath
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "docs" / "pages"
SITE = ROOT / "build" / "site"
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",  # the site's first page says the same
    "SECURITY.md": "security.md",
    "crates/dyno-agent/README.md": "agent.md",
    "python/dbdyno/recipes/README.md": "recipes.md",
}
"""Pages of the repository outside of docs, with their place in the site. Other files that pages link to are
in its folder ``source``."""
_SHOWN = {".html", ".json", ".png", ".svg", ".txt"}
"""Suffixes of sources that a browser shows; others get .txt, else it would offer to save the file."""
_IN_SEARCH = {
    4: ("concepts.md", "guides/", "how-it-works/", "install.md"),
    0.2: ("changelog.md", "claims.md", "decisions/", "index.md", "json.md", "recipes.md", "schema.md"),
}
"""Weights in the site's search: what explains comes first; lists, decisions and changes come last."""
_CODE = r"^```.*?^```|(?<!`)(?P<quotes>`+)(?!`)(?:(?!\n\n).)+?(?<!`)(?P=quotes)(?!`)"
_LINK = re.compile(
    rf"{_CODE}|(?:\[(?P<file>[\w./-]+\.md))?\]\((?P<target>[^)\s]+)\)", re.MULTILINE | re.DOTALL
)
_LIST_IN_PARAGRAPH = re.compile(
    rf"{_CODE}|^(?![-*+] |\d+\. |[|#>])(?P<line>\S[^\n]*)\n(?=[-*+] )", re.MULTILINE | re.DOTALL
)
_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def place(path: str, root: Path) -> str:
    """Returns where a file of the repository is in the site; of a folder, the list of its files."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    at = path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}"
    if (root / path).is_dir():
        return f"{at}/index.md"
    if at.startswith("source/") and path.endswith(".md"):
        raise ValueError(f"{path}: name its place in OUTSIDE of tools/build_site.py")
    return f"{at}.txt" if at.startswith("source/") and Path(path).suffix not in _SHOWN else at


def gather(root: Path) -> dict[str, bytes]:
    """Returns the site's files: those of docs and, page by page, what they link to."""
    docs = [p.relative_to(root).as_posix() for p in sorted((root / "docs").rglob("*")) if p.is_file()]
    ahead = [*docs, *(p for p in OUTSIDE if (root / p).exists())]
    files: dict[str, bytes] = {}
    while ahead:
        path = ahead.pop()
        if path == "README.md" or (at := place(path, root)) in files:
            continue
        if not at.endswith(".md"):
            files[at] = (root / path).read_bytes()
            continue
        folder = path if (root / path).is_dir() else posixpath.dirname(path)
        markdown = _list_of_files(root / path) if folder == path else (root / path).read_text("utf-8")
        markdown, linked = adapted(_with_whole_pages(markdown, root / folder), folder, at, root)
        boost = next((weight for weight, pages in _IN_SEARCH.items() if at.startswith(pages)), None)
        head = f"---\nsearch:\n  boost: {boost}\n---\n\n" if boost else ""
        files[at], ahead = (head + markdown).encode(), [*ahead, *linked]
    return files


def adapted(markdown: str, folder: str, at: str, root: Path) -> tuple[str, list[str]]:
    """Returns a page of a folder with links that fit its place in the site, and the files that it links to.

    The name of a file as the text of a link becomes the title of the page.
    """
    linked: list[str] = []

    def link(found: re.Match[str]) -> str:
        target, _, anchor = (found["target"] or "").partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        file = posixpath.normpath(posixpath.join(folder, target))
        linked.append(file)
        begin = "]" if found["file"] is None else f"[{title((root / file).read_text('utf-8'))}]"
        to = posixpath.relpath(place(file, root), posixpath.dirname(at) or ".")
        return f"{begin}({to}{'#' if anchor else ''}{anchor})"

    def separate(found: re.Match[str]) -> str:
        """Python-Markdown takes no list to begin within a paragraph, as GitHub does."""
        return found[0] if found["line"] is None else f"{found[0]}\n"

    return _LIST_IN_PARAGRAPH.sub(separate, _LINK.sub(link, markdown)), linked


def _with_whole_pages(markdown: str, folder: Path) -> str:
    """Returns Markdown whose pictures of pages, PAGE.png, lead to PAGE.html if that is there."""

    def picture(found: re.Match[str]) -> str:
        whole = f"{found['page']}.html"
        return f"[{found[0]}]({whole})" if (folder / whole).is_file() else found[0]

    return re.sub(r"!\[[^\]]*\]\((?P<page>[\w./-]+)\.png\)", picture, markdown)


def title(text: str) -> str:
    """Returns a page's first heading."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"no heading in a page that begins {text[:60]!r}")
    return found[1]


def _list_of_files(folder: Path) -> str:
    """Returns a page in Markdown with the files of a folder, pages by their titles."""
    titles = {
        p.name: title(p.read_text("utf-8")) if p.suffix == ".md" else p.name
        for p in sorted(folder.iterdir())
        if p.is_file()
    }
    lines = (f"- [{text}]({name})".replace(". ", "\\. ", 1) for name, text in titles.items())
    return "\n".join([f"# {folder.name.capitalize()}", "", *lines, ""])


def write(files: dict[str, bytes], folder: Path) -> None:
    """Writes the files into a new folder."""
    shutil.rmtree(folder, ignore_errors=True)
    for at, content in files.items():
        (folder / at).parent.mkdir(parents=True, exist_ok=True)
        (folder / at).write_bytes(content)


def with_mathml(page: str, mathml: Callable[..., str]) -> str:
    """Returns a page whose equations are MathML in place of TeX."""

    def equation(found: re.Match[str]) -> str:
        kind, bracket, tex = found.groups()
        display = "block" if bracket == "[" else "inline"
        return f'<{kind} class="arithmatex">{mathml(html.unescape(tex).strip(), display=display)}</{kind}>'

    return _EQUATION.sub(equation, page)


def main() -> None:
    from latex2mathml.converter import convert

    write(gather(ROOT), PAGES)
    shutil.rmtree(SITE, ignore_errors=True)
    command = [Path(sys.executable).with_name("mkdocs"), "build", "--clean", "--strict", "--quiet"]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # a banner about the theme's successor
    subprocess.run(command, cwd=ROOT, env=os.environ | quiet, check=True)
    for page in SITE.rglob("*.html"):
        text = page.read_text("utf-8")
        if (changed := with_mathml(text, convert)) != text:
            page.write_text(changed, "utf-8")


if __name__ == "__main__":
    main()
