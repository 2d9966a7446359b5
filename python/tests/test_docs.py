"""What is written is true: examples run, and the reference is what the docstrings say."""

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
def test_examples_hold(name: str) -> None:
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        pytest.skip(str(error))
    failed, _ = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0


# Guides, and what they need. Code for several ranks is run by ranks_worker.py.
@pytest.mark.parametrize(("guide", "needed"), [("python", "numpy"), ("trainers", "torch")])
def test_the_guides_run(guide: str, needed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(needed)
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / f"docs/{guide}.md").read_text(), re.M | re.S)
    assert len(blocks) > 4
    names: dict[str, object] = {}
    for block in blocks:
        if not block.startswith("# every rank"):
            exec(block, names)


def test_the_reference_is_current() -> None:
    pytest.importorskip("transformers")
    done = subprocess.run([sys.executable, ROOT / "scripts/python-api", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
