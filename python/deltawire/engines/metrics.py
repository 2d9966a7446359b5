"""Prometheus' text of what an engine serves; the names are in docs/engines.md."""

from __future__ import annotations

from typing import Any

# name, kind, help, and where the value is in Follower.status(); with the run that it is of, where it is of one.
_METRICS: list[tuple[str, str, str, Any]] = [
    ("ready", "gauge", "1: what is served is what it should be, as far as is known.", lambda s: int(s["ready"])),
    ("weight_version", "gauge", "Version that is served.", lambda s: _of_run(s)),
    ("local_version", "gauge", "Version that the host's replica holds.", lambda s: _of_run(s["held"])),
    ("staged_version", "gauge", "Version that all workers have ready.", lambda s: _of_run(_all_staged(s["workers"]))),
    ("lag_versions", "gauge", "Versions between what is held and what is served; absent across runs.", lambda s: _lag(s)),
    ("updates_total", "counter", "Versions that were put in place.", lambda s: s["updates"]),
    ("update_failures_total", "counter", "Updates that failed; the version before was served on.", lambda s: s["failures"]),
    ("heals_total", "counter", "Failed proofs after which all weights were compared and are right again.", lambda s: s["heals"]),
    ("pause_seconds", "gauge", "The last pause, from the first call to the last.", lambda s: s["pause_seconds"]),
    ("pause_seconds_total", "counter", "All pauses together.", lambda s: s["pause_seconds_total"]),
    ("swap_seconds", "gauge", "Of the last pause: writing, the slowest worker.", lambda s: _slowest(s["workers"], "swap")),
    ("reload_seconds", "gauge", "Of the last pause: the engine's own loader.", lambda s: _slowest(s["workers"], "reload")),
    ("proof_seconds", "gauge", "Of the last pause: the proof.", lambda s: _slowest(s["workers"], "proof")),
    ("proof_ok", "gauge", "1: what is served was proven. 0: a proof failed. Absent: nothing was proven.", lambda s: _proof_ok(s)),
    ("proof_version", "gauge", "Version that the last proof was of.", lambda s: _of_run(_proof(s["workers"]))),
    ("staged_bytes", "gauge", "Memory of versions that wait to be written.", lambda s: _staged_bytes(s["workers"])),
]


def prometheus_text(status: dict[str, Any]) -> str:
    """One line for each metric that is known."""
    lines: list[str] = []
    for name, kind, words, value_of in _METRICS:
        value = value_of(status)
        if value is None:
            continue
        labels, value = value if isinstance(value, tuple) else ("", value)
        lines += [f"# HELP deltawire_engine_{name} {words}", f"# TYPE deltawire_engine_{name} {kind}"]
        lines.append(f"deltawire_engine_{name}{labels} {value}")
    return "\n".join(lines) + "\n"


def _of_run(version: dict[str, Any] | None) -> tuple[str, int] | None:
    if version is None or version["version"] is None:
        return None
    return f'{{run="{version["run"]}"}}', version["version"]


def _lag(status: dict[str, Any]) -> int | None:
    held = status["held"]
    if held is None or held["run"] != status["run"] or held["version"] < status["version"]:
        return None
    return int(held["version"] - status["version"])


def _all_staged(workers: list[dict[str, Any]]) -> dict[str, Any] | None:
    staged = [worker.get("staged") for worker in workers]
    return staged[0] if staged and all(one == staged[0] for one in staged) else None


def _slowest(workers: list[dict[str, Any]], part: str) -> float | None:
    times = [pause[part] for worker in workers if (pause := worker.get("last_pause"))]
    return max(times) if times else None


def _proof(workers: list[dict[str, Any]]) -> dict[str, Any] | None:
    return workers[0].get("proof") if workers else None


def _proof_ok(status: dict[str, Any]) -> int | None:
    """Of what is served now: what was proven of another version says nothing of it."""
    if any(worker.get("suspect") for worker in status["workers"]):
        return 0
    proof = _proof(status["workers"])
    names = ("run", "version", "manifest")
    if proof is None or not proof["num_tensors"] or any(proof[name] != status[name] for name in names):
        return None
    return int(not proof["wrong"])


def _staged_bytes(workers: list[dict[str, Any]]) -> int:
    return sum(worker.get("staged_device_bytes", 0) + worker.get("staged_host_bytes", 0) for worker in workers)
