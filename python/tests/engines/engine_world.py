"""A trainer's store, a host's folder and a server on it, whose follower advances step by step on request."""

import asyncio
from pathlib import Path
from typing import Any

from engine_models import Engine, changed, checkpoint
from fastapi import FastAPI
from fastapi.testclient import TestClient
from test_engines import Chain, identity, wait_until

import deltawire as dw
from deltawire.engines.follower import Follower
from deltawire.engines.member import Member
from deltawire.engines.routes import add_routes
from deltawire.engines.settings import Settings


class Server:
    """An engine's server: engines side by side, each with one worker, and the follower, advanced step by step."""

    def __init__(self, settings: Settings, members: list[Member]) -> None:
        self.members = members
        self.labels: list[int] = []
        self.paused, self.resume_error = False, ""
        app = FastAPI()
        add_routes(app, "docs/test.md")
        self.http = TestClient(app)
        self.follow(settings)

    def follow(self, settings: Settings) -> None:
        """Start a new follower without state, like a restarted API server."""
        self.follower = self.http.app.state.deltawire = Follower(settings, self)

    @property
    def num_engines(self) -> int:
        return len(self.members)

    async def call(self, call: str, **options: Any) -> list[dict[str, Any]]:
        return [member.call(call, **options) for member in self.members]

    async def pause(self, keep_cache: bool) -> None:
        self.paused = True

    async def resume(self) -> None:
        if self.resume_error:
            raise RuntimeError(self.resume_error)
        self.paused = False

    async def set_version(self, served: dw.Identity) -> None:
        self.labels.append(served.version)

    def go_on(self) -> None:
        """One step of the follower, including its handling of a failure."""
        try:
            asyncio.run(self.follower._go_on())
        except Exception as error:
            self.follower._note(error)

    def serve(self, wanted: dw.Identity) -> None:
        def is_served() -> bool:
            self.go_on()
            return self.follower.seen.served == wanted

        wait_until(is_served)

    def ready(self, **wanted: Any) -> tuple[int, dict[str, Any]]:
        answer = self.http.get("/deltawire/ready", params=wanted)
        return answer.status_code, answer.json()

    def go_on_until(self, status: int, **wanted: Any) -> None:
        """Advance until the readiness query returns this status."""
        wait_until(lambda: self.go_on() or self.ready(**wanted)[0] == status)

    def metrics(self) -> dict[str, float]:
        lines = self.http.get("/deltawire/metrics").text.splitlines()
        pairs = (line.removeprefix("deltawire_engine_").rsplit(maxsplit=1) for line in lines if not line.startswith("#"))
        return {name.partition("{")[0]: float(value) for name, value in pairs}

    def close(self) -> None:
        for member in self.members:
            member.close()


class World:
    """A trainer's store, a host's folder, and servers on it."""

    def __init__(self, folder: Path, engines: int = 1, kind: type[Engine] = Engine, **options: Any) -> None:
        self.chain = Chain(folder)
        self.chain.replica.close()
        options = {"interval": 0.05, "timeout": 30, **options}
        self.settings = Settings(store=self.chain.store, local=self.chain.local, **options)
        self.engines = [kind() for _ in range(engines)]
        for engine in self.engines:
            engine.load_weights(self.chain.tensors.items())
        self.server = Server(self.settings, [self.member(f"test{n}", engine) for n, engine in enumerate(self.engines)])
        self.server.serve(identity(self.chain, 0))

    def member(self, name: str, engine: Engine) -> Member:
        return Member(self.settings, engine, engine=name, reload=engine.load_weights)

    def step(self, seed: int) -> dw.Identity:
        return identity(self.chain, self.chain.step(seed, pull=False))

    def replace_run(self, folder: Path, versions: int) -> dw.Publisher:
        """Publish another run in the same place, with the same numbers. A follower may be writing its heartbeat there."""
        Path(self.chain.store).rename(folder / "replaced")
        publisher = dw.Publisher(self.chain.store)
        for number in range(versions):
            publisher.publish(changed(checkpoint(), seed=100 + number))
        return publisher
