"""Prometheus' text of what an engine serves; the names are in docs/engines.md."""

from __future__ import annotations

from typing import Any

# name, kind, help, and where the value is in Follower.status().
_METRICS: list[tuple[str, str, str, Any]] = [
    ("weight_version", "gauge", "Version that is served.", lambda s: s["version"]),
    ("local_version", "gauge", "Version that the host's replica holds.", lambda s: s["local"]),
    ("staged_version", "gauge", "Version that all workers have ready.", lambda s: _all_staged(s["workers"])),
    ("lag_versions", "gauge", "Versions between what is held and what is served.", lambda s: _lag(s)),
    ("updates_total", "counter", "Versions that were put in place.", lambda s: s["updates"]),
    ("update_failures_total", "counter", "Updates that failed; the version before was served on.", lambda s: s["failures"]),
    ("pause_seconds", "gauge", "The last pause, from the first call to the last.", lambda s: s["pause_seconds"]),
    ("pause_seconds_total", "counter", "All pauses together.", lambda s: s["pause_seconds_total"]),
    ("swap_seconds", "gauge", "Of the last pause: writing, the slowest worker.", lambda s: _slowest(s["workers"], "swap")),
    ("reload_seconds", "gauge", "Of the last pause: the engine's own loader.", lambda s: _slowest(s["workers"], "reload")),
    ("proof_seconds", "gauge", "Of the last pause: the proof.", lambda s: _slowest(s["workers"], "proof")),
    ("proof_ok", "gauge", "1: the last proof found what the version says.", lambda s: _proof_ok(s["workers"])),
    ("proof_version", "gauge", "Version that the last proof was of.", lambda s: _proof(s["workers"], "version")),
    ("staged_bytes", "gauge", "Memory of versions that wait to be written.", lambda s: _staged_bytes(s["workers"])),
]


def prometheus_text(status: dict[str, Any]) -> str:
    """One line for each metric that is known."""
    lines: list[str] = []
    for name, kind, words, value_of in _METRICS:
        value = value_of(status)
        if value is None:
            continue
        lines += [f"# HELP deltawire_engine_{name} {words}", f"# TYPE deltawire_engine_{name} {kind}"]
        lines.append(f"deltawire_engine_{name} {value}")
    return "\n".join(lines) + "\n"


def _lag(status: dict[str, Any]) -> int | None:
    if status["local"] is None or status["version"] is None:
        return None
    return max(0, int(status["local"]) - int(status["version"]))


def _all_staged(workers: list[dict[str, Any]]) -> int | None:
    staged = {worker.get("staged") for worker in workers}
    return staged.pop() if len(staged) == 1 else None


def _slowest(workers: list[dict[str, Any]], part: str) -> float | None:
    times = [pause[part] for worker in workers if (pause := worker.get("last_pause"))]
    return max(times) if times else None


def _proof(workers: list[dict[str, Any]], key: str) -> Any:
    proof = workers[0].get("proof") if workers else None
    return None if proof is None else proof[key]


def _proof_ok(workers: list[dict[str, Any]]) -> int | None:
    wrong = _proof(workers, "wrong")
    return None if wrong is None else int(not wrong)


def _staged_bytes(workers: list[dict[str, Any]]) -> int:
    return sum(worker.get("staged_device_bytes", 0) + worker.get("staged_host_bytes", 0) for worker in workers)
