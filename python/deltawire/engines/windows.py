"""Windows: which elements of an array of an engine are which elements of a checkpoint's tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

import torch

from deltawire.engines.loads import Copy

_MAX_BOXES = 4096  # that one window is cut into


@dataclass(frozen=True)
class Window:
    """Element (i, j, ...) is number `first + i * strides[0] + ...` of the tensor and `array_first + ...` of the array."""

    extent: tuple[int, ...]
    first: int
    strides: tuple[int, ...]
    array: int
    array_first: int
    array_strides: tuple[int, ...]

    @property
    def size(self) -> int:
        """Elements."""
        return prod(self.extent)

    def of_array(self, array: torch.Tensor) -> torch.Tensor:
        """The view of an array, which is flat."""
        return torch.as_strided(array, self.extent, self.array_strides, self.array_first)

    def of_tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """The view of the checkpoint's tensor, which is contiguous."""
        return torch.as_strided(tensor, self.extent, self.strides, self.first)

    def offset_of(self, position: int) -> int | None:
        """Where an element of the tensor is in the array."""
        rest, at = position - self.first, self.array_first
        for extent, stride, array_stride in zip(self.extent, self.strides, self.array_strides, strict=True):
            if rest < 0 or rest // stride >= extent:
                return None
            at, rest = at + rest // stride * array_stride, rest % stride
        return at if rest == 0 else None


def window_of(copy: Copy) -> Window | None:
    """A copy as a window; None when it does not run through its tensor in order, or repeats elements of it."""
    dims = [dim for dim in zip(copy.shape, copy.source_strides, copy.strides, strict=True) if dim[0] > 1]
    dims.sort(key=lambda dim: -dim[1])
    inner = 1
    for extent, stride, _ in reversed(dims):
        if stride < inner:
            return None
        inner += stride * (extent - 1)
    extents, strides, array_strides = (tuple(dim[k] for dim in dims) for k in range(3))
    return Window(extents, copy.source_offset, strides, copy.home, copy.offset, array_strides)


@dataclass(frozen=True)
class BoxView:
    """A box of a tensor, and where its rows are in an array."""

    offset: tuple[int, ...]
    extent: tuple[int, ...]
    array: int
    array_first: int
    array_strides: tuple[int, ...]

    def of_array(self, array: torch.Tensor) -> torch.Tensor:
        """Its contents, in the order of the tensor."""
        return torch.as_strided(array, self.extent, self.array_strides, self.array_first)


def boxes_of(window: Window, shape: tuple[int, ...]) -> list[BoxView] | None:
    """A window as boxes of a tensor of that shape, most often one; None when they would be too many."""
    boxes: list[BoxView] = []
    for box in _boxes_of(window, shape):
        if box is None or len(boxes) == _MAX_BOXES:
            return None
        boxes.append(box)
    return boxes


def _boxes_of(window: Window, shape: tuple[int, ...]) -> Iterator[BoxView | None]:
    box = _box_of(window, shape)
    if box is not None or not window.extent:
        yield box
        return
    for i in range(window.extent[0]):
        yield from _boxes_of(
            Window(
                window.extent[1:],
                window.first + i * window.strides[0],
                window.strides[1:],
                window.array,
                window.array_first + i * window.array_strides[0],
                window.array_strides[1:],
            ),
            shape,
        )


def _box_of(window: Window, shape: tuple[int, ...]) -> BoxView | None:
    strides = [prod(shape[d + 1 :]) for d in range(len(shape))]
    last = window.first + sum((n - 1) * stride for n, stride in zip(window.extent, window.strides, strict=True))
    low, high = ([at // stride % n for stride, n in zip(strides, shape, strict=True)] for at in (window.first, last))
    extent = [b - a + 1 for a, b in zip(low, high, strict=True)]
    if any(n < 1 for n in extent) or prod(extent) != window.size:
        return None
    array_strides = []
    for n, stride in zip(extent, strides, strict=True):
        beside = window.offset_of(window.first + stride) if n > 1 else window.array_first
        if beside is None:
            return None
        array_strides.append(beside - window.array_first)
    end = window.array_first + sum((n - 1) * stride for n, stride in zip(extent, array_strides, strict=True))
    if window.offset_of(last) != end:
        return None
    return BoxView(tuple(low), tuple(extent), window.array, window.array_first, tuple(array_strides))
