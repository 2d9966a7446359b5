"""Checks of `deltawire doctor` for this Python: versions of packages, and whether engines find deltawire's plugins."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata

from deltawire.engines.versions import TESTED, is_newer, is_older
from deltawire.errors import EXTRAS

SUPPORTED: dict[str, tuple[str, str]] = {
    "torch": ("2.6", "2"),
    "transformers": ("5", "5"),
    **TESTED,
    "trl": ("1.16", "1"),
    "verl": ("0.9", "0.9"),
    "peft": ("0", ""),
    "nixl": ("1", "1"),
}
"""First and last release that deltawire supports. "5" as the last includes 5.1; "": no limit."""

PLUGINS = {"vllm": "vllm.general_plugins", "sglang": "sglang.srt.plugins"}

Check = dict[str, str]
"""What was checked, what was found, and what to do ("next"; empty: nothing)."""


def checks() -> list[Check]:
    """Check installed packages without importing them."""
    found = {package: _version(package) for package in SUPPORTED}
    said = [_check("python", f"{platform.python_version()}, {sys.executable}")]
    said += [_check_version(package, version) for package, version in found.items() if version]
    missing = [package for package, version in found.items() if not version]
    extras = [extra for extra in (*EXTRAS, *PLUGINS) if set(EXTRAS.get(extra, (extra,))) & set(missing)]
    if missing:
        said.append(_check("not installed", f"{', '.join(missing)}; if needed: pip install 'deltawire[{','.join(extras)}]'"))
    return said + [_check_plugin(engine) for engine in PLUGINS if found[engine]]


def _check(what: str, detail: str, next: str = "") -> Check:
    return {"what": what, "detail": detail, "next": next}


def _version(package: str) -> str | None:
    try:
        return str(metadata.version(package) or "0")  # None: the installation is broken
    except metadata.PackageNotFoundError:
        return None


def _check_version(package: str, version: str) -> Check:
    first, last = SUPPORTED[package]
    newer = bool(last) and is_newer(version, last)
    if not newer and not is_older(version, first):
        return _check(package, version)
    newest = last.split(".")
    beyond = ".".join([*newest[:-1], str(int(newest[-1] or 0) + 1)])
    wanted = f"{package}>={first}" + (f",<{beyond}" if last else "")
    said = f"{version} is newer than {last}, the newest tested release" if newer else f"{version} is not supported"
    return _check(package, said, f"if it fails: pip install '{wanted}'" if newer else f"pip install '{wanted}'")


def _check_plugin(engine: str) -> Check:
    what = f"{engine} plugin"
    if not metadata.entry_points(group=PLUGINS[engine], name="deltawire"):
        again = "install deltawire into the environment of the engine (pip install .); a PYTHONPATH is not enough"
        return _check(what, f"{engine} does not find deltawire", again)
    allowed = os.environ.get("VLLM_PLUGINS") if engine == "vllm" else None
    if allowed is not None and "deltawire" not in allowed.split(","):
        return _check(what, f"VLLM_PLUGINS={allowed} leaves deltawire out", "add deltawire to VLLM_PLUGINS, or unset it")
    return _check(what, "registered")
