"""Builds the documentation site into build/site, with llms.txt. It loads nothing from elsewhere.

python scripts/site.py     assemble the pages, build, and copy each page's Markdown beside it

The pages of the repository link to each other and to source files. A site has pages only, so the
pages at the top of the repository move into it, and links to source files become plain text.
Diagrams are drawn by the copy of Mermaid that NiceGUI brings along.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
ASSEMBLED = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
MOVED = {
    "README.md": "index.md",
    "docs/README.md": "documentation.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages that lie elsewhere in the repository than on the site."""
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


def places() -> dict[Path, Path]:
    """Return where each page and image of the repository lies on the site."""
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "docs" / "images").iterdir()]
    found = {file: file.relative_to(ROOT / "docs") for file in files}
    return found | {ROOT / source: Path(target) for source, target in MOVED.items()}


def on_site(text: str, page: Path, known: dict[Path, Path]) -> str:
    """Return the text of a page with its links as they are on the site."""

    def relink(match: re.Match[str]) -> str:
        mark, label, target = match.groups()
        path, hash_mark, anchor = target.partition("#")
        if "://" in target or not path:
            return match[0]
        file = (page.parent / path).resolve()
        if file.is_dir() and (file / "README.md") in known:
            file /= "README.md"
        if file not in known:
            return label if label.startswith("`") else f"{label} (`{file.relative_to(ROOT)}`)"
        relative = os.path.relpath(known[file], known[page].parent)
        return f"{mark}[{label}]({relative}{hash_mark}{anchor})"

    # Every second piece is a block of code, in which nothing is a link.
    pieces = FENCE.split(text)
    pieces[::2] = [LINK.sub(relink, piece) for piece in pieces[::2]]
    return "".join(pieces)


def assemble() -> dict[Path, Path]:
    """Write the pages into the folder that the site is built from."""
    shutil.rmtree(ASSEMBLED, ignore_errors=True)
    known = places()
    for source, target in known.items():
        to = ASSEMBLED / target
        to.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".md":
            to.write_text(on_site(source.read_text(), source, known))
        else:
            shutil.copy(source, to)
    import nicegui.elements.mermaid as drawn_by

    assets = ASSEMBLED / "assets"
    shutil.copytree(Path(drawn_by.__file__).parent / "dist", assets / "mermaid")
    (assets / "diagrams.js").write_text(DIAGRAMS)
    return known


def describe(pages: list[Path]) -> str:
    """Return llms.txt: what there is, for programs that read Markdown."""
    lines = ["# Duly", "", "> A distributed, multi-tenant task scheduler.", ""]
    for page in pages:
        title = (ASSEMBLED / page).read_text().partition("\n")[0].removeprefix("# ")
        lines.append(f"- [{title}]({page})")
    return "\n".join([*lines, ""])


def main() -> None:
    """Build the site; a warning is an error."""
    known = assemble()
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--clean"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)  # noqa: S603
    pages = sorted(target for target in known.values() if target.suffix == ".md")
    for page in pages:
        shutil.copy(ASSEMBLED / page, SITE / page)
    (SITE / "llms.txt").write_text(describe(pages))
    sys.stdout.write(f"{SITE.relative_to(ROOT)}: {len(pages)} pages\n")


if __name__ == "__main__":
    main()
