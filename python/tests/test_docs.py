"""Documentation is correct: examples run, and the reference equals the docstrings."""

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import deltawire

ROOT = Path(__file__).parents[2]
FOUND = pkgutil.walk_packages(deltawire.__path__, "deltawire.", onerror=lambda name: None)
MODULES = ["deltawire", *(module.name for module in FOUND)]


@pytest.mark.filterwarnings("default::DeprecationWarning")  # of what integrations import, about each other
@pytest.mark.parametrize("name", [name for name in MODULES if not name.endswith(("__main__", "_core"))])
def test_docstring_examples_run(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(str(error))
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0


# Guides and the packages they need. Code for several ranks is run by ranks_worker.py.
@pytest.mark.parametrize(("guide", "needed"), [("python", "numpy"), ("trainers", "torch")])
def test_guides_run(guide: str, needed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / f"docs/{guide}.md").read_text(), re.M | re.S)
    assert len(blocks) > 4
    names: dict[str, object] = {}
    for block in blocks:
        if not block.startswith("# every rank"):
            exec(block, names)


def test_reference_is_current() -> None:
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, ROOT / "scripts/python-api", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def anchors_of(page: Path) -> set[str]:
    """The anchors that GitHub makes from headings."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    titles = (re.sub(r"[^\w\- ]", "", title.lower()) for title in re.findall(r"^#+ (.+)$", text, re.M))
    return {title.replace(" ", "-") for title in titles}


def quoted_messages() -> list[str]:
    """The first column of the tables on the troubleshooting page."""
    rows = re.findall(r"^\| (`.*?) \|", (ROOT / "docs/troubleshooting.md").read_text(), re.M)
    return [message for row in rows for message in re.findall(r"`([^`]+)`", row)]


def source_text() -> str:
    """All sources, with adjacent string literals joined and quotes in them unescaped."""
    kinds = {".cpp", ".h", ".py"}
    files = [path for top in ("src", "cli", "python/deltawire") for path in (ROOT / top).rglob("*") if path.suffix in kinds]
    joined = (re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in files if path.name != "next_step.cpp")
    return "\n".join(joined).replace('\\"', '"')


def test_quoted_messages_are_in_the_source() -> None:
    messages, source = quoted_messages(), source_text()
    assert len(messages) > 25
    pieces = [piece.strip() for message in messages for piece in message.split("…")]
    assert [piece for piece in pieces if piece not in source] == []


PAGES = [page for folder in (".", "docs", "bench", "examples", "deploy") for page in ROOT.glob(f"{folder}/*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    assert not broken
