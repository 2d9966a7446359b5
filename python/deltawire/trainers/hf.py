"""Hugging Face trainers: a callback that publishes what `save_pretrained` would save.

    from deltawire.trainers.hf import PublishCallback

    Trainer(model, args, train_dataset=data, callbacks=[PublishCallback("s3://bucket/run-7")]).train()

It works with `transformers.Trainer` and subclasses, such as TRL's trainers. Replicas are folders that `from_pretrained` loads.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal

from deltawire._internal.options import check_options
from deltawire._internal.publisher import Publisher
from deltawire._internal.reader import cast_name
from deltawire._internal.stores import StoreLike
from deltawire._internal.tensors import Named
from deltawire.errors import Cancelled, InvalidArgument, IoError, MissingExtra, Unavailable, Unsupported, missing_extra
from deltawire.reports import PublishReport

try:
    import torch
    from transformers import PreTrainedModel, TrainerCallback
    from transformers.utils import logging as transformers_logging
except ImportError as error:
    raise missing_extra(error, "hf") from None

from deltawire.torch.shards import is_sharded
from deltawire.torch.state import without_ties

try:
    from transformers.core_model_loading import revert_weight_conversion
    from transformers.modeling_utils import _get_tied_weight_keys, remove_tied_weights_from_state_dict, unwrap_model
except ImportError as error:
    raise MissingExtra(f"transformers is too old, version 5 is needed: pip install 'deltawire[hf]' ({error})") from None

log = logging.getLogger("deltawire")

_MAY_PASS = (Unavailable, IoError, Cancelled)
"""Errors that may be temporary: an outage, a full disk, a failed hook."""


_OPTIONS = [name for name in signature(Publisher).parameters if name not in ("store", "tensors", "dtype", "group")]
"""Options that the callback passes to `Publisher`."""


class PublishCallback(TrainerCallback):
    """Publishes a trainer's model: at the start, after every `every` optimizer steps, and at the end.

    With DDP the first process publishes; with FSDP2 or tensor parallelism each process its shards. Resumed training continues the
    chain.
    """

    def __init__(
        self,
        store: StoreLike,
        every: int = 1,
        *,
        wait: bool = False,
        dtype: torch.dtype | None = None,
        tensors: Callable[[Any], Named] | None = None,
        extra_files: Sequence[str | os.PathLike[str]] = (),
        on_version: Callable[[int, PublishReport], object] | None = None,
        on_error: Literal["raise", "warn"] = "warn",
        **options: Any,
    ) -> None:
        """Publish to `store`; `options` as in `Publisher`, also `dtype` and `adapter`.

        `wait=False`: a step continues once its changes are captured. `on_error="warn"`: errors that may pass (`Unavailable`,
        `IoError`, a failed hook) are logged and kept in `error`. `train()` raises others, any before the first commit, and with
        "raise" all.

        `tensors(model)` returns what to publish. Configuration, tokenizer and `extra_files` are in every version.
        `on_version(step, version)` is called after a commit, in the training's thread.
        """
        if every < 1:
            raise InvalidArgument(f"PublishCallback: every={every}: must be at least 1")
        if on_error not in ("raise", "warn"):
            raise InvalidArgument(f'PublishCallback: on_error={on_error!r}: must be "raise" or "warn"')
        cast_name(dtype)  # raises if it is not supported
        check_options("PublishCallback", _OPTIONS, options)
        if options.get("adapter") and tensors is not None:
            raise InvalidArgument("PublishCallback: `adapter` or `tensors`, not both")
        self._store, self._every, self._wait, self._dtype = store, every, wait, dtype
        self._tensors, self._extra_files, self._on_version = tensors or checkpoint_tensors, extra_files, on_version
        self._options, self._patient = options, on_error == "warn"
        self._is_adapter = bool(options.get("adapter"))
        self._publisher: Publisher | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._files: list[str | os.PathLike[str]] = []
        self._pending: tuple[int, Future[PublishReport]] | None = None
        self._step = -1
        self.version: PublishReport | None = None
        """The newest committed version."""
        self.error: Exception | None = None
        """Why the last state was not published; None: it was, or it is pending."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model, first = kwargs["model"], state.is_world_process_zero
        sharded = any(map(is_sharded, model.parameters()))
        if not first and not sharded:
            return
        self.close()
        group = torch.distributed.group.WORLD if sharded else None
        source = model if self._is_adapter else None
        self._publisher = Publisher(self._store, source, dtype=self._dtype, group=group, **self._options)
        self._folder = tempfile.TemporaryDirectory(prefix="deltawire-")
        has_files = first and not self._is_adapter
        saved = save_files(model, self._folder.name, kwargs.get("processing_class"), dtype=self._dtype) if has_files else []
        self._files = [*saved, *self._extra_files]
        self._publish(state.global_step, model)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % self._every == 0:
            self._publish(state.global_step, kwargs["model"])

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        try:
            self._publish(state.global_step, kwargs["model"])
            self._finish_pending()
            self._publish(state.global_step, kwargs["model"])  # retry, if the last state was not published
        finally:
            self.close()
            if self.error is not None and self._patient:
                newest = "no version" if self.version is None else f"version {self.version.number}"
                log.error("the final weights were not published; replicas stay at %s: %s", newest, self.error)

    def close(self) -> None:
        """Wait for a pending version, then release everything."""
        publisher, self._publisher = self._publisher, None
        folder, self._folder = self._folder, None
        self._step = -1
        try:
            self._finish_pending()
        finally:
            if publisher is not None:
                publisher.close()
            if folder is not None:
                folder.cleanup()

    def _publish(self, step: int, model: Any) -> None:
        publisher = self._publisher
        if publisher is None or step == self._step:
            return
        try:
            self._finish_pending()
            self._step = step
            with self._patience(step):
                wanted = (
                    None if self._is_adapter else partial(self._tensors, model)
                )  # called inside `publish`, so that a failure reaches all ranks
                if self._wait:
                    self._committed(step, publisher.publish(wanted, self._files or None))
                else:
                    self._pending = step, publisher.publish(wanted, self._files or None, wait=False)
        except BaseException:
            self.close()  # trainers do not call `on_train_end` after an error
            raise

    def _finish_pending(self) -> None:
        pending, self._pending = self._pending, None
        if pending is not None:
            step, future = pending
            with self._patience(step):
                self._committed(step, future.result())

    @contextmanager
    def _patience(self, step: int) -> Iterator[None]:
        """Log a temporary error instead of raising it; the next version then includes this step."""
        try:
            yield
        except _MAY_PASS as error:
            if not self._patient or self.version is None:
                raise
            self.error, self._step = error, -1
            log.warning("step %d was not published; the next version includes its changes: %s", step, error)

    def _committed(self, step: int, version: PublishReport) -> None:
        self.version, self.error = version, None
        log.info("step %d: %r", step, version)
        if self._on_version is not None:
            self._on_version(step, version)


def checkpoint_tensors(model: Any) -> dict[str, torch.Tensor]:
    """What `save_pretrained` would save: the same names, tied weights once, experts one by one, nothing copied."""
    model = unwrap_model(model)
    if getattr(model, "hf_quantizer", None) is not None or getattr(model, "peft_config", None) is not None:
        raise Unsupported("quantized models and models with adapters need `tensors`, or `adapter=True` for the adapter alone")
    if any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        raise Unsupported("models sharded by DeepSpeed (ZeRO-3) need `tensors`; or use FSDP2")
    state: dict[str, torch.Tensor] = model.state_dict()
    if not isinstance(model, PreTrainedModel):
        return state  # trainers save all of it
    for name in model._keys_to_ignore_on_save or ():
        state.pop(name, None)
    if any(map(is_sharded, state.values())):
        state = dict(without_ties(state.items(), _get_tied_weight_keys(model)))
    else:
        state = remove_tied_weights_from_state_dict(state, model)
    saved: dict[str, torch.Tensor] = revert_weight_conversion(model, state)
    return saved


def save_files(
    model: Any, folder: str | os.PathLike[str], processing_class: Any = None, *, dtype: torch.dtype | None = None
) -> list[Path]:
    """Write configuration, tokenizer and code as `save_pretrained` does. Returns the paths."""
    model, folder = unwrap_model(model), Path(folder)
    base = model.get_base_model() if hasattr(model, "get_base_model") else model  # PEFT has one
    if isinstance(base, PreTrainedModel):
        with _no_bar():
            base.save_pretrained(folder, state_dict={})
    if processing_class is not None:
        processing_class.save_pretrained(folder)
    for weights in folder.glob("*.safetensors*"):
        weights.unlink()
    config = folder / "config.json"
    if dtype is not None and config.exists():
        config.write_text(json.dumps(_with_dtype(json.loads(config.read_text()), dtype), indent=2) + "\n")
    return sorted(path for path in folder.iterdir() if path.is_file())


def _with_dtype(config: Any, dtype: torch.dtype) -> Any:
    """Set the dtype in a configuration and in nested ones."""
    if not isinstance(config, dict):
        return config
    name = str(dtype).removeprefix("torch.")
    return {key: name if key == "dtype" and value is not None else _with_dtype(value, dtype) for key, value in config.items()}


@contextmanager
def _no_bar() -> Iterator[None]:
    shown = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers_logging.enable_progress_bar()
