"""Hooks of MkDocs: build the site from files that are written for GitHub.

- Home is README.md. Other files outside docs/ that a page links to become part of the site at their path in the
  repository: Markdown as a page, a folder as a list, a source file as a code block, data as it is. Where Cargo.toml
  names the repository, links go there instead, except to pages of the navigation.
- Links are rewritten as they are rendered, so that the same link works on GitHub and on the site.
- Differences between GitHub's Markdown and Python's are evened out: anchors, info strings of code blocks, lists
  without an empty line before them, and lists indented by two spaces.
"""

import os
import posixpath
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import tomllib
from markdown.blockprocessors import build_block_parser
from markdown.extensions import Extension
from markdown.treeprocessors import Treeprocessor
from mkdocs.structure.files import File, InclusionLevel
from pymdownx.slugs import slugify

ROOT = Path(__file__).resolve().parent.parent
# Copied as they are: browsers show them, and some are large.
AS_IT_IS = {".json", ".txt", ".svg", ".png", ".html", ".pdf", ".gz"}
# `](address)` also stands in code: that adds a file that no page links to, at worst.
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^( *)(`{3,}|~{3,})([^`]*)$")
ITEM = re.compile(r"^([-*+]|\d+\.) ")


class Site:
    """Files of the site by their path in the repository."""

    def __init__(self):
        self.pages = {}
        self.repository = None
        self.current = None

    def target(self, path):
        """Returns the address for a link to a file of the repository; None if the file is not there."""
        if path in self.pages:
            return posixpath.relpath(self.pages[path].src_uri, posixpath.dirname(self.current.src_uri) or ".")
        if self.repository and (ROOT / path).exists():
            kind = "tree" if (ROOT / path).is_dir() else "blob"
            return f"{self.repository}/{kind}/HEAD/{path}"
        return None


SITE = Site()


def local_path(address, folder):
    """Returns the path in the repository that an address leads to, and the address's parts; None for other addresses."""
    parts = urlsplit(address)
    if parts.scheme or parts.netloc or not parts.path or parts.path.startswith("/"):
        return None, parts
    return posixpath.normpath(posixpath.join(folder, unquote(parts.path))), parts


def folder_of(path):
    """Returns the folder that the links of a page are relative to."""
    return path if (ROOT / path).is_dir() else posixpath.dirname(path)


class Links(Treeprocessor):
    """Rewrites links and pictures from paths of the repository to paths of the site."""

    def run(self, root):
        source = next(path for path, file in SITE.pages.items() if file is SITE.current)
        for element in root.iter():
            for key in ("href", "src"):
                address = element.get(key)
                if element.tag not in ("a", "img") or not address:
                    continue
                path, parts = local_path(address, folder_of(source))
                found = SITE.target(path) if path else None
                # A link without a target stays, and MkDocs reports it.
                if found:
                    element.set(key, urlunsplit(("", "", found, "", parts.fragment)) if "://" not in found else found)


class GitHub(Extension):
    def extendMarkdown(self, md):
        # GitHub nests a list at two spaces. The parser reads this when it is made.
        md.tab_length = 2
        md.parser = build_block_parser(md)
        # After inline patterns (20) have made the links, before MkDocs (0) resolves them.
        md.treeprocessors.register(Links(md), "repository-links", 10)


def on_config(config):
    # First: others add to its parser.
    config.markdown_extensions.insert(0, GitHub())
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))
    SITE.repository = manifest["workspace"]["package"].get("repository", "").rstrip("/").removesuffix(".git") or None
    SITE.pages = {}
    return config


def on_files(files, config):
    for file in files:
        if file.abs_src_path and Path(file.abs_src_path).is_relative_to(ROOT / "docs") and not file.inclusion.is_excluded():
            SITE.pages[os.path.relpath(file.abs_src_path, ROOT)] = file

    def add(path, src_uri, inclusion=InclusionLevel.INCLUDED, **source):
        file = File.generated(config, src_uri, inclusion=inclusion, **source)
        if files.get_file_from_path(src_uri):
            raise ValueError(f"{path} and another file are both {src_uri} of the site")
        files.append(file)
        SITE.pages[path] = file

    add("README.md", "index.md", abs_src_path=str(ROOT / "README.md"))
    for name in ("docs.css", "docs.js"):
        add(f"scripts/{name}", name, abs_src_path=str(ROOT / "scripts" / name))
    for path in paths(config.nav):
        if not (ROOT / "docs" / path).exists() and (ROOT / path).exists() and path != "index.md":
            add(path, path, abs_src_path=str(ROOT / path))
    # Files that pages link to, and those that these link to.
    unread = [file for file in SITE.pages.values() if file.is_documentation_page()]
    while unread:
        page = unread.pop()
        source = next(path for path, file in SITE.pages.items() if file is page)
        for address in LINK.findall(page.content_string):
            path, _ = local_path(address, folder_of(source))
            if SITE.repository or not path or path in SITE.pages or path.startswith("..") or not (ROOT / path).exists():
                continue
            src_uri, contents = rendered(path)
            add(path, src_uri, InclusionLevel.NOT_IN_NAV, **contents)
            if SITE.pages[path].is_documentation_page():
                unread.append(SITE.pages[path])
    return files


def paths(nav):
    """Yields the files of a navigation."""
    for item in nav if isinstance(nav, list) else nav.values():
        if isinstance(item, str):
            yield item
        else:
            yield from paths(item)


def rendered(path):
    """Returns the name and the contents on the site of a file or folder outside docs/."""
    file = ROOT / path
    # Raw data and sources are not what a search is for.
    head = f"---\nsearch:\n  exclude: true\nhide: [navigation]\n---\n\n# {path}\n\n"
    if file.is_dir():
        names = sorted(str(below.relative_to(file)) for below in file.rglob("*") if below.is_file() and below.name[0] != ".")
        return f"{path}/index.md", {"content": head + "".join(f"- [{name}]({name})\n" for name in names)}
    if file.suffix in AS_IT_IS:
        return path, {"abs_src_path": str(file)}
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return path, {"abs_src_path": str(file)}
    if file.suffix == ".md":
        return path, {"content": "---\nsearch:\n  exclude: true\nhide: [navigation]\n---\n\n" + text}
    fence = "`" * (1 + max([2, *map(len, re.findall("`+", text))]))
    language = {".rs": "rust", ".c": "c", ".toml": "toml", ".sh": "sh", ".service": "ini"}.get(file.suffix, "text")
    return f"{path}.md", {"content": f"{head}{fence}{language}\n{text.rstrip()}\n{fence}\n"}


def on_page_markdown(markdown, page, config, files):
    SITE.current = page.file
    if page.file.src_uri == "index.md":
        # Its section has no other page.
        page.meta.setdefault("hide", []).append("navigation")
    lines, fence = [], None
    for line in markdown.split("\n"):
        found = FENCE.match(line)
        if fence:
            if found and found[2].startswith(fence) and not found[3].strip():
                fence = None
        elif found:
            fence = found[2]
            # The tests' marks after the language; Rust's marks follow a comma.
            line = found[1] + fence + re.split(r"[\s,]", found[3].strip())[0]
        elif ITEM.match(line) and lines and lines[-1] and re.match(r"[^\s|#>-]", lines[-1]) and not ITEM.match(lines[-1]):
            lines.append("")
        lines.append(line)
    return "\n".join(lines)


def on_page_content(html, page, config, files):
    # The theme's columns are narrow: keep the ends of an interval on one line.
    def cell(found):
        return re.sub(r"(\[×?[\d.]+,) (×?[\d.]+\])", "\\1\N{NO-BREAK SPACE}\\2", found[0])

    return re.sub(r"<td[^>]*>.*?</td>", cell, html, flags=re.S)
