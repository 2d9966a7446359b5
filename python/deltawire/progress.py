"""Progress of long calls: `progress=True` shows a bar, a callable is told."""

from __future__ import annotations

from collections.abc import Callable

from deltawire.errors import missing_extra

Callback = Callable[[int, int], bool | None]
"""Called now and then with bytes done and bytes to do; returning False cancels, and so does an exception."""

Progress = bool | Callback
"""`True`: a tqdm bar, which needs tqdm: `pip install 'deltawire[progress]'`."""


def callback_of(progress: Progress, label: str) -> Callback | None:
    """What the extension is to call; None: nothing."""
    if callable(progress):
        return progress
    return _bar(label) if progress else None


def _bar(label: str) -> Callback:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise missing_extra(error, "progress") from None
    bar, ended = None, False

    def show(done: int, total: int) -> None:
        nonlocal bar, ended
        if done >= total and ended:  # told once more
            return
        if bar is not None and done < bar.n:  # the call before was broken off
            bar.close()
            bar = None
        if bar is None:
            bar = tqdm(desc=label, total=total, unit="B", unit_scale=True, leave=False)
        bar.total = total
        bar.update(done - bar.n)
        ended = done >= total
        if ended:
            bar.close()
            bar = None

    return show
