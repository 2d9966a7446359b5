"""Converts a model's tensors to those of a quantised checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from typing import Any

import torch

from deltawire._internal.tensors import TORCH_NAMES
from deltawire.errors import InvalidArgument, Unsupported
from deltawire.quantize.config import Rules, rules_of
from deltawire.quantize.formats import FORMATS
from deltawire.quantize.fp8 import Fp8Block
from deltawire.quantize.integers import Int4, PackedInt8
from deltawire.quantize.kernels import Fp8Blocks, Fp8BlocksOnGpu
from deltawire.quantize.like import Like
from deltawire.quantize.mx import ExpertsMxFp4
from deltawire.quantize.scheme import SCALES, Agreed, Amax, Coded, Scheme, parts_of, refuse_unbounded, siblings

_ALL_NAMES = TORCH_NAMES | {"F8_E8M0": "float8_e8m0fnu"}  # the last one since torch 2.7
_DTYPES = {name: getattr(torch, own) for name, own in _ALL_NAMES.items() if hasattr(torch, own)}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_SHOWN = 8
_HEAD = "lm_head.weight"
_FLOATS = ("F64", "F32", "F16", "BF16")
# Suffixes of tensors of a quantised module, in all formats.
_PARTS = (
    ".weight",
    ".weight_packed",
    ".weight_shape",
    ".weight_zero_point",
    *(f".{scale}" for scale in SCALES),
    "_blocks",
    "_scales",
)


@dataclass(frozen=True)
class Shard:
    """A tensor, or a box of it."""

    name: str
    tensor: Any
    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    offset: tuple[int, ...]

    @staticmethod
    def whole(name: str, tensor: Any) -> Shard:
        """A shard that is the whole tensor."""
        return Shard(name, tensor, tuple(tensor.shape), (0,) * tensor.dim())

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole tensor."""
        return tuple(self.tensor.shape) == self.shape


@dataclass(frozen=True)
class Quantised:
    """A tensor of the quantised checkpoint, or a box of it."""

    shard: Shard
    dtype: str | None
    """Safetensors dtype; None: not quantised, the model's dtype."""
    sources: tuple[str, ...]
    """Names of the model's tensors that it depends on."""
    constant: bool = False
    """Copied from the template checkpoint."""
    carried: bool = False
    """Copied because the model lacks it; not a scale of activations."""


@dataclass(frozen=True)
class Planned:
    """The quantised tensors of one tensor of the model: their forms, and a function that computes them."""

    forms: tuple[Quantised, ...]
    """With tensors on torch's device "meta", unless `make` is None."""
    device: Any
    """The device where they are computed."""
    make: Callable[[], tuple[Quantised, ...]] | None
    """Computes them; each call anew. None: `forms` are already complete."""
    blocks: Fp8Blocks | Fp8BlocksOnGpu | None = None
    """For FP8 blocks: the library computes the elements (the first form) on demand."""


class Quantizer:
    """Quantises the tensors of a Hugging Face model."""

    def __init__(
        self,
        rules: Rules,
        config: Mapping[str, Any],
        like: Like | None = None,
        rounded: str = "BF16",
    ) -> None:
        """`rounded`: dtype to which weights are rounded first. `like`: template that the result must match."""
        self.config, self.rounded = config, rounded
        self._rules, self._like = rules, like

    @property
    def settings(self) -> str:
        """Everything that the bytes depend on, as canonical JSON: part of a run's identity.

        Of `like` it contains only what is not in the configuration, so that runs survive a change between both.
        """
        return json.dumps(
            {"from": self.rounded, **self._rules.settings(), **self._decided()}, sort_keys=True, separators=(",", ":")
        )

    def _decided(self) -> dict[str, str]:
        """Digests of what only `like` determines: unquantised modules, dtypes of shapes, and constants."""
        if self._like is None:
            return {}
        plain, shapes = [], []
        for name, spec in self._like.tensors.items():
            if spec.dtype in _FLOATS and len(spec.shape) > 1 and self._ruled(name):
                plain.append(name)
            if name.endswith(".weight_shape") and spec.dtype != "I64":
                shapes.append(f"{name} {spec.dtype}")
        constants = [
            f"{name} {tensor.dtype} {list(tensor.shape)} {tensor.reshape(-1).view(torch.uint8).tolist()}"
            for name, tensor in self._like.calibrated.items()
        ]
        found = {"plain": plain, "shapes": shapes, "constants": constants}
        return {key: f"{len(words)}, {_digest(words)}" for key, words in found.items() if words}

    def words_of(self, carried: list[str]) -> str:
        """A note about tensors that are copied because the model lacks them."""
        assert self._like is not None
        shown = ", ".join(carried[:_SHOWN]) + (f" and {len(carried) - _SHOWN} more" if len(carried) > _SHOWN else "")
        return f"{len(carried)} tensors that the model lacks are copied from {self._like.folder}: {shown}"

    def config_for(self, names: Iterable[str]) -> Mapping[str, Any]:
        """The configuration for a checkpoint of these tensors. It lists all unquantised modules, as engines require."""
        left = [] if self._like else self._rules.unsaid_of(_module(name) for name in names if name.endswith(".weight"))
        if not left:
            return self.config
        said = self.config.get("modules_to_not_convert") or self.config.get("ignored_layers") or ()
        return {**self.config, "modules_to_not_convert": sorted({*said, *left})}

    @property
    def agrees(self) -> bool:
        """Whether ranks may have to exchange amaxes."""
        return any(scheme.amax_of for _, scheme in self._rules.groups)

    def amaxes(self, shards: Iterable[Shard]) -> list[Amax]:
        """The amaxes of these shards that other ranks may need."""
        found = []
        for shard in shards:
            scheme = self._quantising(shard)
            if scheme is None or not scheme.amax_of or 0 in shard.shape:  # empty tensors are refused later
                continue
            if _is_cut(shard, scheme) or (scheme.shares_amax and len(siblings(shard.name)) > 1):
                found.append(self._amax(shard, scheme))
        return found

    def scheme_of(self, name: str) -> Scheme | None:
        """How a tensor of the model is quantised; None: not at all."""
        scheme = self._ruled(name)
        return scheme if scheme is None or self._like is None else self._as_there(name, scheme, self._like)

    def _ruled(self, name: str) -> Scheme | None:
        """The scheme according to the configuration."""
        scheme = self._rules.scheme_of(_module(name))
        return scheme if name.endswith(".weight") or isinstance(scheme, ExpertsMxFp4) else None

    def quantised(self, shards: Iterable[Shard], constants: bool = True, agreed: Agreed | None = None) -> Iterator[Quantised]:
        """The tensors of the quantised checkpoint, computed one after the other; arguments as in `planned`."""
        for plan in self.planned(shards, (), constants, agreed):
            yield from plan.forms if plan.make is None else plan.make()

    def planned(
        self,
        shards: Iterable[Shard],
        beside: Iterable[Shard] = (),
        constants: bool = True,
        agreed: Agreed | None = None,
        there: Callable[[Any], bool] = lambda device: False,
        elsewhere: Collection[str] = (),
    ) -> Iterator[Planned]:
        """The tensors that the quantised checkpoint has in place of these, not computed yet. Refuses what cannot be quantised.

        `beside`: other tensors of the model, which may share a scale with these. `constants`: also what only `like` has.
        `agreed`: the amaxes of all ranks. `there`: whether the library reads tensors of a device where they are. `elsewhere`:
        names that only other ranks have.
        """
        shards = list(shards)
        context = _Context({shard.name: shard for shard in (*beside, *shards)}, {}, agreed)
        for shard in shards:
            scheme = self._checked(shard, context)
            device = shard.tensor.device
            if scheme is None:
                plain = self._plain(replace(shard, tensor=shard.tensor.to("meta")))
                if plain.shard.tensor.dtype == shard.tensor.dtype:
                    kept = shard if self._like is None else replace(shard, tensor=shard.tensor.detach())
                    yield Planned((replace(plain, shard=kept),), device, None)
                else:
                    yield Planned((plain,), device, partial(self._plains, shard))
                continue
            blocks: Fp8Blocks | Fp8BlocksOnGpu | None = None
            if isinstance(scheme, Fp8Block) and device.type == "cpu":
                blocks = Fp8Blocks(shard.name, shard.tensor, scheme, self.rounded)
            elif isinstance(scheme, Fp8Block) and there(device) and Fp8BlocksOnGpu.fits(shard.tensor, self.rounded):
                blocks = Fp8BlocksOnGpu(shard.name, shard.tensor, scheme, self.rounded)
            sharing = (shard.name,) if blocks is not None else self._largest(shard, scheme, context)[1]
            forms = scheme.forms(tuple(shard.tensor.shape), _DTYPES[self.rounded])
            make = partial(self._made, shard, scheme, context, sharing, blocks)
            yield Planned(tuple(self._placed(shard, forms, context, sharing)), device, make, blocks)
        if constants:
            _refuse_nothing(context, elsewhere)
            for one in self._constants(context, elsewhere):
                yield Planned((one,), torch.device("cpu"), partial(self._read, one))

    def _constants(self, context: _Context, elsewhere: Collection[str]) -> Iterator[Quantised]:
        """Forms of tensors that only `like` has: scales of activations, and layers that are not trained."""
        like = self._like
        if like is None:
            return
        ours = {_module(name): name for name in context.known}
        theirs = {_module(name) for name in elsewhere}.union(elsewhere)
        for name in sorted(like.tensors):
            if name in context.coded or name in context.known or name in theirs:
                continue
            module = next((name.removesuffix(part) for part in _PARTS if name.endswith(part)), name)
            if module in theirs:
                continue
            calibrated = name in like.calibrated
            if module != name and module in ours:
                raise InvalidArgument(
                    f'tensor "{name}": {like.folder} has it, but quantising "{ours[module]}" does not produce it'
                )
            if name == _HEAD and not like.is_head_tied:  # an old head with a trained embedding would be wrong
                raise InvalidArgument(
                    f'tensor "{name}": {like.folder} has a separate head, but the model has none; if it is tied, set '
                    "tie_word_embeddings in that config.json"
                )
            spec = like.tensors[name]
            if spec.dtype not in _DTYPES:
                raise Unsupported(f'tensor "{name}": the model lacks it, and cannot copy {spec.dtype} from {like.folder}')
            form = torch.empty(spec.shape, dtype=_DTYPES[spec.dtype], device="meta")
            yield Quantised(Shard.whole(name, form), spec.dtype, (), constant=True, carried=not calibrated)

    def _read(self, constant: Quantised) -> tuple[Quantised, ...]:
        assert self._like is not None
        name = constant.shard.name
        tensor = self._like.calibrated.get(name)
        return (replace(constant, shard=Shard.whole(name, self._like.read(name) if tensor is None else tensor)),)

    def _made(
        self, shard: Shard, scheme: Scheme, context: _Context, sharing: tuple[str, ...], blocks: Any
    ) -> tuple[Quantised, ...]:
        if isinstance(blocks, Fp8Blocks) and isinstance(scheme, Fp8Block):
            weight, scales = Coded(blocks.elements(), (1, 1)), Coded(blocks.scales(), scheme.block)
            coded: Mapping[str, Coded] = {"weight": weight, "weight_scale_inv": scales}
        else:
            largest, _ = self._largest(shard, scheme, context)
            coded = scheme.coded(self._rounded(shard.tensor), largest.to(shard.tensor.device), shard.shape)
        made = tuple(self._placed(shard, coded, context, sharing))
        for one in made:
            _refuse_infinite(one.shard, shard.name)
        return made

    def _placed(
        self, shard: Shard, coded: Mapping[str, Coded], context: _Context, sharing: tuple[str, ...]
    ) -> Iterator[Quantised]:
        """The quantised tensors of a shard, checked, with names and places."""
        for suffix, one in coded.items():
            placed, brings = _placed(shard, suffix, one)
            context.coded.add(placed.name)
            if not brings:
                continue
            if placed.name != shard.name and placed.name in context.known:
                raise InvalidArgument(f'tensor "{placed.name}": the model has it, but quantising "{shard.name}" produces it')
            self._check_coded(placed, shard.name)
            yield Quantised(placed, _NAMES[placed.tensor.dtype], sharing)

    def _checked(self, shard: Shard, context: _Context) -> Scheme | None:
        """How it is quantised; None: not at all. Raises if it cannot be quantised."""
        name = shard.name
        scheme = self._quantising(shard)
        if scheme is None:
            self._refuse_codes(shard, context)
            self._refuse_experts(shard)
            return None
        if shard.tensor.element_size() == 1:
            raise InvalidArgument(f'tensor "{name}": is {_dtype_name(shard.tensor)}, quantised already')
        if 0 in shard.shape:
            raise InvalidArgument(f'tensor "{name}": has no elements: {list(shard.shape)}')
        scheme.check(name, shard.shape)
        _check_cut(shard, scheme)
        return scheme

    def _refuse_codes(self, shard: Shard, context: _Context) -> None:
        """Refuse integers with scales: they are quantised already."""
        module = shard.name.removesuffix("_packed").removesuffix(".weight")
        if shard.tensor.is_floating_point() or module == shard.name:
            return
        scale = next((f"{module}.{scale}" for scale in SCALES if f"{module}.{scale}" in context.known), None)
        if scale is not None:
            raise InvalidArgument(f'tensor "{shard.name}": is {_dtype_name(shard.tensor)} with "{scale}", quantised already')

    def _refuse_experts(self, shard: Shard) -> None:
        """Refuse all experts in one tensor, as in transformers 5: checkpoints have a matrix per expert."""
        name = shard.name
        if len(shard.shape) != 3 or ".experts." not in f".{name}" or not shard.tensor.is_floating_point():
            return
        scheme = self._rules.scheme_of(name)
        plain = self._like is not None and name in self._like.tensors
        if scheme is not None and not plain:
            raise InvalidArgument(
                f'tensor "{name}": contains all experts, but {scheme.format} quantises each separately; publish '
                "deltawire.trainers.hf.checkpoint_tensors(model), which splits them, or do not quantise the module"
            )

    def _quantising(self, shard: Shard) -> Scheme | None:
        """The scheme; None: not quantised, such as norms and biases of a quantised module, or a router's vector."""
        if not shard.tensor.is_floating_point() or len(shard.shape) < 2:
            return None
        return self.scheme_of(shard.name)

    def _largest(self, shard: Shard, scheme: Scheme, context: _Context) -> tuple[Any, tuple[str, ...]]:
        """The amax for its scale, and the tensors that it depends on; (): also on other ranks."""
        names = siblings(shard.name) if scheme.shares_amax else [shard.name]
        agreed = context.agreed
        here = [name for name in names if name in context.known and self.scheme_of(name) == scheme]
        for name in here:
            if name not in context.amaxes:
                context.amaxes[name] = self._amax(context.known[name], scheme)
        if agreed is None and scheme.amax_of and _is_cut(shard, scheme):
            what = "all of it" if scheme.amax_of == "tensor" else "all of a row"
            raise InvalidArgument(
                f'tensor "{shard.name}": this rank holds a shard, but a scale of {scheme.format} covers {what}; '
                "pass a group with all ranks: dw.Publisher(..., group=...)"
            )
        given = [amax for name in names for amax in (agreed or {}).get(name, ()) if self.scheme_of(name) == scheme]
        largest = context.amaxes[shard.name].values
        for other in [context.amaxes[name] for name in here] + given:
            largest = other.over(largest, context.amaxes[shard.name].first_row)
        scheme.check_amax(shard.name, largest)
        return largest, () if given else tuple(here)

    def _rounded(self, tensor: Any) -> Any:
        return tensor.detach().to(_DTYPES[self.rounded])

    def _amax(self, shard: Shard, scheme: Scheme) -> Amax:
        sizes = self._rounded(shard.tensor).abs()
        by_rows = scheme.amax_of == "row" and sizes.dim() == 2
        values = (sizes.amax(dim=1, keepdim=True) if by_rows else sizes.amax()).float()
        refuse_unbounded(shard.name, values)
        return Amax(shard.name, shard.offset[0] if by_rows else 0, values)

    def _plain(self, shard: Shard) -> Quantised:
        """A tensor that is not quantised, in the dtype of the template."""
        if self._like is None:
            return Quantised(shard, None, (shard.name,))
        spec = self._like.tensors.get(shard.name)
        if spec is None:
            raise InvalidArgument(f'tensor "{shard.name}": {self._like.folder} has no such tensor, quantised or not')
        if spec.shape != shard.shape:
            raise InvalidArgument(
                f'tensor "{shard.name}": has shape {list(shard.shape)}, but {list(spec.shape)} in {self._like.folder}'
            )
        if shard.tensor.is_floating_point() and spec.dtype not in _FLOATS:
            raise InvalidArgument(
                f'tensor "{shard.name}": is {spec.dtype} in {self._like.folder}, whose configuration does not quantise it'
            )
        dtype = _DTYPES.get(spec.dtype)
        if dtype is None:
            raise Unsupported(f'tensor "{shard.name}": is {spec.dtype} in {self._like.folder}')
        return Quantised(replace(shard, tensor=shard.tensor.detach().to(dtype)), spec.dtype, (shard.name,))

    def _plains(self, shard: Shard) -> tuple[Quantised, ...]:
        return (self._plain(shard),)

    def _as_there(self, name: str, scheme: Scheme, like: Like) -> Scheme | None:
        """Adjust a scheme to the tensors of `like`: its configuration may not list all unquantised modules."""
        spec = like.tensors.get(name)
        if spec is not None and spec.dtype in _FLOATS:
            return None
        shape = like.tensors.get(_module(name) + ".weight_shape")
        if isinstance(scheme, (Int4, PackedInt8)) and shape is not None:
            return replace(scheme, shape_dtype=shape.dtype)
        return scheme

    def _check_coded(self, shard: Shard, source: str) -> None:
        """Check that `like` has such a tensor."""
        tensor = shard.tensor
        if self._like is None:
            return
        spec = self._like.tensors.get(shard.name)
        if spec is None:
            raise InvalidArgument(f'tensor "{source}": {self._like.folder} has no "{shard.name}", which quantising produces')
        coded = _NAMES[tensor.dtype], shard.shape
        if (spec.dtype, spec.shape) != coded:
            raise InvalidArgument(
                f'tensor "{shard.name}": is {spec.dtype} {list(spec.shape)} in {self._like.folder}, but quantising '
                f'"{source}" produces {coded[0]} {list(coded[1])}'
            )


@dataclass(frozen=True)
class _Context:
    """State of a call of `planned`."""

    known: Mapping[str, Shard]
    amaxes: dict[str, Amax]
    """Computed amaxes by name."""
    agreed: Agreed | None
    coded: set[str] = field(default_factory=set)
    """Names of all quantised tensors."""


def quantizer_of(spec: Any, rounded: str = "BF16") -> Quantizer:
    """From a quantised checkpoint's folder, a `quantization_config`, or the name of a format."""
    if isinstance(spec, Quantizer):
        return spec
    if isinstance(spec, Mapping):
        return Quantizer(rules_of(spec), spec, None, rounded)
    if isinstance(spec, str) and spec in FORMATS:
        return Quantizer(rules_of(FORMATS[spec]), FORMATS[spec], None, rounded)
    if isinstance(spec, (str, os.PathLike)) and os.path.isdir(spec):
        like = Like.open(spec)
        return Quantizer(rules_of(like.config), like.config, like, rounded)
    if isinstance(spec, (str, os.PathLike)):
        raise InvalidArgument(f"quantize: {os.fspath(spec)!r} is neither a folder nor a format; formats are {', '.join(FORMATS)}")
    raise InvalidArgument(f"quantize: must be a folder, a quantization_config or the name of a format, not {type(spec).__name__}")


def _refuse_nothing(context: _Context, elsewhere: Collection[str]) -> None:
    """Refuse settings that quantise nothing; other ranks may have quantised tensors."""
    if not context.coded and not elsewhere:
        raise InvalidArgument(f"quantize: these settings quantise none of the model's {len(context.known)} tensors")


def _refuse_infinite(shard: Shard, source: str) -> None:
    """Refuse infinite scales."""
    tensor = shard.tensor
    if tensor.dtype in (torch.float32, torch.bfloat16, torch.float16) and not bool(tensor.isfinite().all()):
        raise InvalidArgument(f'tensor "{source}": too large: "{shard.name}" would be infinite')


def _digest(words: Iterable[str]) -> str:
    return sha256("\n".join(sorted(words)).encode()).hexdigest()[:16]


def _dtype_name(tensor: Any) -> str:
    return _NAMES.get(tensor.dtype) or str(tensor.dtype)


def _module(name: str) -> str:
    return name.removesuffix(".weight")


def _placed(shard: Shard, suffix: str, coded: Coded) -> tuple[Shard, bool]:
    """A quantised tensor in its place, and whether this shard publishes it: the first of those that know it does."""
    name = _module(shard.name) + (suffix if suffix.startswith("_") else "." + suffix)
    tensor = coded.tensor
    if shard.is_whole:
        return Shard.whole(name, tensor), True
    if coded.per is None:
        return Shard.whole(name, tensor), not any(shard.offset)
    offset = tuple(0 if per == 0 else begin // per for begin, per in zip(shard.offset, coded.per, strict=True))
    brings = not any(begin and per == 0 for begin, per in zip(shard.offset, coded.per, strict=True))
    return Shard(name, tensor, parts_of(shard.shape, coded.per), offset), brings


def _is_cut(shard: Shard, scheme: Scheme) -> bool:
    """Whether its amax also depends on other shards."""
    if scheme.amax_of == "row" and len(shard.shape) == 2:
        return bool(shard.tensor.shape[1] != shard.shape[1])
    return not shard.is_whole


def _check_cut(shard: Shard, scheme: Scheme) -> None:
    """Refuse shards that cut through a tile."""
    if shard.is_whole:
        return
    for size, begin, extent, tile in zip(shard.shape, shard.offset, shard.tensor.shape, scheme.tile(), strict=True):
        end = begin + extent
        whole = begin == 0 and end == size
        if whole or (tile != 0 and begin % tile == 0 and (end % tile == 0 or end == size)):
            continue
        what = "all of it" if tile == 0 else f"{tile} at a time"
        raise InvalidArgument(
            f'tensor "{shard.name}": this shard holds {begin} to {end} of {size}, but a scale of {scheme.format} covers {what}'
        )
