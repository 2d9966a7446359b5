"""Identities of versions: held, served or requested."""

from __future__ import annotations

from typing import Any, NamedTuple

from deltawire.errors import InvalidArgument


class Identity(NamedTuple):
    """A version of a run. A number alone is not enough: a store can be replaced, and a lost number reused.

    >>> str(Identity("1a2b3c4d" * 4, 4, "0" * 64))
    'version 4 of run 1a2b3c4d'
    """

    run: str
    version: int
    manifest: str
    """SHA-256 of the version's manifest."""

    def __str__(self) -> str:
        return f"version {self.version} of run {self.run[:8]}"


def identity_of(value: tuple[str, int, str] | None) -> Identity | None:
    """From a tuple of the extension."""
    return None if value is None else Identity(*value)


def is_before(one: Identity | None, other: Identity | None) -> bool:
    """Whether both are of the same run and `other` is later."""
    return one is not None and other is not None and one.run == other.run and one.version < other.version


def as_dict(identity: Identity | None) -> dict[str, Any] | None:
    """For JSON."""
    return None if identity is None else identity._asdict()


def salted(salt: str | None, served: Identity | None) -> str | None:
    """The cache salt of a request: only requests of the same version share cached prefixes."""
    if served is None:
        return salt
    own = (salt or "").partition("|deltawire=")[0]
    return f"{own}|deltawire={served.run}/{served.version}/{served.manifest}"


class Wanted(NamedTuple):
    """A requested version or a later one; None: any."""

    version: int | None = None
    run: str | None = None
    manifest: str | None = None

    @classmethod
    def of(cls, value: Wanted | Identity | int | None) -> Wanted:
        """From a number or an identity; None: any version."""
        if isinstance(value, Wanted):
            return value
        if isinstance(value, Identity):
            return cls(value.version, value.run, value.manifest)
        if value is not None and value < 0:
            raise InvalidArgument(f"version {value}: versions count from 0")
        return cls(value)

    def is_met_by(self, held: Identity | None) -> bool:
        """Whether `held` is the wanted version, or a later one of the same run."""
        if held is None or (self.run is not None and held.run != self.run):
            return False
        if self.version is None or held.version > self.version:
            return True
        return held.version == self.version and self.manifest in (None, held.manifest)

    def __str__(self) -> str:
        what = "a version" if self.version is None else f"version {self.version}"
        return what if self.run is None else f"{what} of run {self.run[:8]}"


ANY = Wanted()
"""Any version."""
