"""Brings pages of the repository outside this folder onto the site: the studies, the changes, the policies."""

import os
import re
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
FILES = ["CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "reproductions/README.md"]
FILES += sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("reproductions/*/*.md") if path.stem.isupper())
PAGES = {ROOT / name: DOCS / "repository" / name for name in FILES}
ORPHAN = "---\norphan: true\n---\n\n"


def write_pages() -> None:
    """Copies them into docs/repository, which git ignores."""
    for source, page in PAGES.items():
        text = with_links(source.read_text(encoding="utf-8"), source, page)
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text((ORPHAN if source.stem == "APPENDIX" else "") + text, encoding="utf-8")


def with_links(text: str, source: Path, page: Path) -> str:
    """The text with its relative links leading from `page` to where they led from `source`, copied pages included."""

    def led(match: re.Match[str]) -> str:
        target, mark, anchor = match["target"].partition("#")
        if not target or "://" in target or target.startswith("mailto:"):
            return match[0]
        place = Path(os.path.normpath(source.parent / target))
        place = PAGES.get(place, place)
        if not place.is_relative_to(DOCS) and not match["image"]:  # a file that the site does not have
            return match["words"]
        return f"{match['image']}[{match['words']}]({os.path.relpath(place, page.parent)}{mark}{anchor})"

    return re.sub(r"(?P<image>!?)\[(?P<words>(?:[^\]\n]|\n(?!\n))*)\]\((?P<target>[^)\s]+)\)", led, text)
