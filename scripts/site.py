"""Builds the documentation site, with llms.txt and no external resources.

python scripts/site.py            assemble the pages in build/docs, and build build/site
python scripts/site.py FOLDER     the same in FOLDER/docs and FOLDER/site

The pages of the repository link to each other and to source files. A site has pages only, so the
pages at the top of the repository move into it, and links to source files become plain text.
Diagrams are drawn by the copy of Mermaid that NiceGUI contains.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PATHS_ON_SITE = {
    "README.md": "index.md",
    "docs/README.md": "documentation.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages whose path on the site differs from their path in the repository."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
DIAGRAMS = """\
import { mermaid } from "./mermaid/index.js";
mermaid.initialize({ startOnLoad: false });
for (const block of document.querySelectorAll("pre.diagram")) {
  const drawing = document.createElement("div");
  drawing.textContent = block.textContent;
  block.replaceWith(drawing);
  mermaid.run({ nodes: [drawing] });
}
"""


def site_paths() -> dict[Path, Path]:
    """Return the path on the site of each page and image of the repository."""
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs" / "images").iterdir()]
    paths = {file: file.relative_to(ROOT / "docs") for file in files}
    return paths | {ROOT / source: Path(target) for source, target in PATHS_ON_SITE.items()}


def relink_page(text: str, page: Path, paths: dict[Path, Path]) -> str:
    """Return the text of a page with its links adapted to the site."""

    def relink(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        path, hash_mark, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        file = (page.parent / path).resolve()
        if file.is_dir() and (file / "README.md") in paths:
            file /= "README.md"
        if file not in paths:
            return label if label.startswith("`") else f"{label} (`{file.relative_to(ROOT)}`)"
        relative = os.path.relpath(paths[file], paths[page].parent)
        return f"{mark}[{label}]({relative}{hash_mark}{anchor})"

    # Every second piece is a code block, in which nothing is a link.
    pieces = FENCE.split(text)
    pieces[::2] = [LINK.sub(relink, piece) for piece in pieces[::2]]
    return "".join(pieces)


def assemble(folder: Path) -> dict[Path, Path]:
    """Write the pages into the folder that the site is built from."""
    shutil.rmtree(folder, ignore_errors=True)
    paths = site_paths()
    for source, target in paths.items():
        destination = folder / target
        destination.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            destination.write_text(relink_page(source.read_text(), source, paths))
        else:
            shutil.copy(source, destination)
    import nicegui.elements.mermaid as mermaid

    assets = folder / "assets"
    shutil.copytree(Path(mermaid.__file__).parent / "dist", assets / "mermaid")
    (assets / "diagrams.js").write_text(DIAGRAMS)
    return paths


def describe(folder: Path, pages: list[Path]) -> str:
    """Return llms.txt: the list of pages for programs that read Markdown."""
    lines = ["# Duly", "", "> A distributed, multi-tenant task scheduler.", ""]
    for page in pages:
        title = (folder / page).read_text().partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({page})")
    return "\n".join([*lines, ""])


def main() -> None:
    """Build the site; a warning is an error."""
    folder = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "build"
    sources, site = folder / "docs", folder / "site"
    paths = assemble(sources)
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "DULY_SITE_PAGES": str(sources)}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--clean", "--site-dir", site]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)  # noqa: S603
    pages = sorted(target for target in paths.values() if target.suffix == ".md")
    for page in pages:
        shutil.copy(sources / page, site / page)
    (site / "llms.txt").write_text(describe(sources, pages))
    sys.stdout.write(f"{site}: {len(pages)} pages\n")


if __name__ == "__main__":
    main()
