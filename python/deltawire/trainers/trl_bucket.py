"""TRL's own delta sync, in its files: a transfer for `AsyncGRPOTrainer` whose servers know nothing of deltawire.

    from deltawire.trainers.trl_bucket import BucketTransfer

    transfer = BucketTransfer("s3://bucket/run-7", "s3://bucket/run-7-trl", base_url="http://engine:8000", dtype="bfloat16")
    AsyncGRPOTrainer(model, reward, args, train_dataset=data, weight_transfer=transfer).train()

Each sync is a version of a chain, and a file in TRL's layout: `anchors/step_000001.safetensors`, `deltas/step_000002.safetensors`
and so on. Servers read the files when they are told to (TRL's pull requests 5417, "v1", and 5937, "v3").
"""

from __future__ import annotations

import http.client
import json
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from deltawire._internal.options import Path
from deltawire._internal.stores import Store, StoreLike, open_store
from deltawire.dialects import Exporter
from deltawire.errors import InvalidArgument, Unavailable, missing_extra

try:
    import torch
except ImportError as error:
    raise missing_extra(error, "trl") from None

from deltawire.trainers.trl import WeightTransfer

log = logging.getLogger("deltawire")

_SECONDS = 30.0  # for an answer that does not wait for weights


class BucketTransfer(WeightTransfer):
    """Publishes to a chain, writes the version in TRL's files, and leads the servers through it: pause, update, resume.

    Upload and export are done while servers generate; they pause for what they read. TRL's deltas say nothing of what they go
    onto. So what each server holds is kept here: one that is new, or that failed, gets the newest anchor and the deltas since.
    Their deltas cannot add or remove tensors: `Unsupported` then, with nothing written there.
    """

    def __init__(
        self,
        store: StoreLike,
        bucket: StoreLike,
        *,
        base_url: str | Sequence[str],
        repo_id: str | None = None,
        anchor_every: int = 10,
        encoding: str = "gap_delta",
        work: Path | None = None,
        **options: Any,
    ) -> None:
        """Publish to `store`, and write TRL's files to `bucket`; `options` are those of `WeightTransfer`.

        `base_url` names the servers. `repo_id` is what they call the bucket; its URL if it is not given. Every `anchor_every`-th
        version is whole, and the first. `encoding` is "gap_delta" or "raw", which v3 reads, or "v1". `work` is a folder where the
        model is kept as it was exported last (None: ~/.cache/deltawire/exports).
        """
        if options.get("wait", "published") != "published":
            raise InvalidArgument(f"BucketTransfer: wait={options['wait']!r}: a sync is done when the servers have it")
        super().__init__(store, **{**options, "wait": "published"})
        self._bucket = bucket if isinstance(bucket, Store) else open_store(bucket)
        self._repo_id = repo_id or self._bucket.url
        self._export_options: dict[str, Any] = {"anchor_every": anchor_every, "encoding": encoding, "work": work}
        self._export_options["keys"] = options.get("keys")
        self._is_v1 = encoding == "v1"
        self._exporter: Exporter | None = None
        self._holds: dict[str, int | None] = {}
        self._failed: set[str] = set()  # perhaps restarted: to be begun with anew
        for url in [base_url] if isinstance(base_url, str) else base_url:
            self._holds[url.rstrip("/")] = None
        if not self._holds:
            raise InvalidArgument("BucketTransfer: no base_url: whom is it to tell?")

    @property
    def holds(self) -> dict[str, int | None]:
        """What each server applied last; None: nothing that is known."""
        return dict(self._holds)

    def init_weight_transfer(self) -> None:
        """Open the store, and the servers' side; those that are late get what there is."""
        self._open()
        for server in self._holds:
            self._begin(server)
        self._catch_up()

    def add_server(self, url: str) -> None:
        """One that joins late: it gets the newest anchor and the deltas since."""
        server = url.rstrip("/")
        self._begin(server)
        self._holds[server] = None
        self._catch_up()

    def send_weights(self, iterator: Iterator[tuple[str, torch.Tensor]]) -> None:
        """Publish what changed, write it in TRL's files, and bring every server there.

        `Unavailable` names the servers that did not follow, after all were resumed. The next sync brings them from an anchor.
        """
        super().send_weights(iterator)
        self._catch_up()

    def destroy(self) -> None:
        """Wait for the version that is on its way, and let go of both stores. A second time does nothing."""
        exporter, self._exporter = self._exporter, None
        if exporter is not None:
            exporter.close()
        super().destroy()

    # ---- TRL's files

    def _export(self) -> int | None:
        """Bring the bucket to the chain's head."""
        chain = self._chain()
        if chain is None:
            return None
        if self._exporter is None:
            first = chain.versions[0]
            self._exporter = Exporter("trl", self._store, self._bucket, first=first, **self._export_options)
        for exported in self._exporter:
            log.info("deltawire: %r", exported)
        return chain.head

    def _files(self, held: int | None, wanted: int) -> list[tuple[int, str]]:
        """Versions and files that lead from what a server holds to another version."""
        anchors = self._steps("anchors/")
        start = max((number for number in anchors if number <= wanted), default=None)
        if held is not None and (start is None or start <= held):
            start, files = held, []
        elif start is None:
            raise Unavailable(f"{self._bucket.url}: no anchor up to version {wanted}: remove the bucket's files to begin again")
        else:
            files = [(start, anchors[start])]
        deltas = self._steps("deltas/")
        for number in range(start + 1, wanted + 1):
            if number not in deltas:
                raise Unavailable(f"{self._bucket.url}: the delta of version {number} is not there")
            files.append((number, deltas[number]))
        return files

    def _steps(self, folder: str) -> dict[int, str]:
        names: list[str] = []
        while True:
            page = [info.name for info in self._bucket.list(folder, names[-1] if names else "", 1000)]
            names += page
            if len(page) < 1000:
                break
        steps = (re.fullmatch(rf"{folder}step_([0-9]+)\.safetensors", name) for name in names)
        return {int(step[1]): step[0] for step in steps if step}

    # ---- TRL's servers

    def _catch_up(self) -> None:
        wanted = self._export()
        if wanted is None:
            return
        failed = {}
        for server, held in self._holds.items():
            if held == wanted:
                continue
            try:
                self._lead(server, held, wanted)
            except Unavailable as error:
                failed[server] = error.message
                self._failed.add(server)
        if failed:
            said = "; ".join(failed.values())
            raise Unavailable(
                f"version {wanted} is in {self._bucket.url}, and not on {len(failed)} of {len(self._holds)}: {said}"
            )

    def _lead(self, server: str, held: int | None, wanted: int) -> None:
        """Pause, update, resume: resumed whatever happens in between, and when no answer says whether it paused."""
        files = self._files(held, wanted)
        self._holds[server] = None  # until it is known to have all of it
        if server in self._failed:
            self._begin(server)
            self._failed.remove(server)
        try:
            self._post(server, "/pause?mode=keep", None, _SECONDS)
            for _, file in files:
                self._update(server, file)
        except BaseException:
            with suppress(Unavailable):  # what failed first is what to tell
                self._post(server, "/resume", None, _SECONDS)
            raise
        self._post(server, "/resume", None, _SECONDS)
        self._holds[server] = wanted

    def _update(self, server: str, file: str) -> None:
        info = {"repo_id": self._repo_id, "filename": file}
        whole = file.startswith("anchors/")
        if self._is_v1:
            self._post(server, "/update_weights", {"update_info": info}, self._timeout)
            return
        info["update_kind"] = "dense" if whole else "sparse_flat"
        self._post(server, "/start_weight_update", {"is_checkpoint_format": whole}, _SECONDS)
        self._post(server, "/update_weights", {"update_info": info}, self._timeout)
        self._post(server, "/finish_weight_update", {}, self._timeout)

    def _begin(self, server: str) -> None:
        if not self._is_v1:
            self._post(server, "/init_weight_transfer_engine", {"init_info": {}}, self._timeout)

    def _post(self, server: str, path: str, body: dict[str, Any] | None, timeout: float) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        request = Request(server + path, data, {"Content-Type": "application/json"}, method="POST")
        try:
            with urlopen(request, timeout=timeout) as answer:
                answer.read()
        except HTTPError as error:
            words = ""
            with error, suppress(OSError, http.client.HTTPException):
                words = error.read(500).decode(errors="replace")
            raise Unavailable(f"{server}{path}: answers {error.code}: {words}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error or type(error).__name__
            raise Unavailable(f"{server}{path}: no answer within {timeout:g} s ({reason})") from None
