"""For mkdocs.yml: what pages link to outside docs/ is not on the site; there it becomes a path in the repository."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def on_page_markdown(markdown: str, **_: object) -> str:
    """`[text](../path)` as text and path. A path that does not exist stays a link, which the strict build refuses."""

    def as_path(link: re.Match[str]) -> str:
        text, path = link.groups()
        if not (ROOT / path).exists():
            return link[0]
        shown = path.rstrip("/")
        return f"`{shown}`" if text.strip("`").endswith(shown.rsplit("/", 1)[-1]) else f"{text} (`{shown}`)"

    return re.sub(r"\[([^\]]+)\]\(\.\./([^)#]+)[^)]*\)", as_path, markdown)
