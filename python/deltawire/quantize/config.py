"""Parses a `quantization_config` into the scheme of each module."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from deltawire.errors import Error, InvalidArgument, Unsupported
from deltawire.quantize.fp8 import CompressedFp8, Fp8Block, Fp8Channel, Fp8Tensor
from deltawire.quantize.integers import Int4, Int8, PackedInt8
from deltawire.quantize.mx import ExpertsMxFp4, MxFp4, MxFp8
from deltawire.quantize.nvfp4 import CompressedNvfp4, Nvfp4
from deltawire.quantize.scheme import Scheme

Match = Callable[[str, str], bool]
"""Whether a module's name matches an entry of the configuration."""

# A Hugging Face checkpoint does not record the classes of modules. Modules with these names are embeddings.
_EMBEDDING = re.compile(
    r"(^|\.)(embed_(tokens\w*|positions|in|out)|(\w+_)?embeddings?|wte|wpe|relative_attention_bias)$|^(model\.)?shared$"
)
# Modules that `quant_method: fp8` checkpoints do not quantise though their configurations do not list them.
_NEVER_FP8 = ("lm_head", "mlp.gate", "mlp.shared_expert_gate", "block_sparse_moe.gate", "router")


@dataclass(frozen=True)
class Rules:
    """Which modules are quantised, and how."""

    groups: tuple[tuple[tuple[str, ...], Scheme], ...]
    """Targets (names or "Linear") and their scheme."""
    ignore: tuple[str, ...]
    match: Match
    unsaid: tuple[str, ...] = ()
    """Entries of `ignore` that are not in the configuration."""

    def scheme_of(self, module: str) -> Scheme | None:
        """None: not quantised. A target that names the module takes precedence over its class."""
        if _EMBEDDING.search(module) or any(self.match(module, word) for word in self.ignore):
            return None
        for targets, scheme in self.groups:
            if any(target != "Linear" and self.match(module, target) for target in targets):
                return scheme
        return next((scheme for targets, scheme in self.groups if "Linear" in targets), None)

    def unsaid_of(self, modules: Iterable[str]) -> list[str]:
        """Modules that are not quantised though the configuration does not list them."""
        return [module for module in modules if any(self.match(module, word) for word in self.unsaid)]

    def settings(self) -> dict[str, Any]:
        """Everything that the bytes depend on, for JSON. Without `unsaid`, so that runs survive additions to it."""
        groups = [{"targets": list(targets), **scheme.settings()} for targets, scheme in self.groups]
        return {"groups": groups, "ignore": [word for word in self.ignore if word not in self.unsaid]}


def rules_of(config: Mapping[str, Any]) -> Rules:
    """Parse a `quantization_config`; `Unsupported` names the unsupported value."""
    method = config.get("quant_method")
    if not isinstance(method, str) or method not in _METHODS:
        raise Unsupported(f"quantization_config: quant_method {method!r}; supported: {', '.join(_METHODS)}")
    try:
        return _METHODS[method](config)
    except Error:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InvalidArgument(f"quantization_config of {method}: {type(error).__name__}: {error}") from None


def by_path(module: str, word: str) -> bool:
    """Lists of Transformers and vLLM: consecutive parts of the dotted name, or a shell pattern.

    >>> by_path("model.layers.1.mlp.gate", "mlp.gate"), by_path("model.layers.1.mlp.gate_proj", "mlp.gate")
    (True, False)
    """
    if "*" in word:
        return fnmatchcase(module, word) or fnmatchcase(module, word + ".*")
    return f".{word}." in f".{module}."


def by_name(module: str, word: str) -> bool:
    """Targets and ignore lists of compressed-tensors: the full name, or `re:` and a regular expression for its start."""
    if not word.startswith("re:"):
        return module == word
    try:
        return bool(re.match(word[3:], module))
    except re.error as error:
        raise InvalidArgument(f"quantization_config: {word!r} is not a regular expression: {error}") from None


def by_pattern(module: str, word: str) -> bool:
    """Lists of ModelOpt: shell patterns for the name or for a parent module."""
    return fnmatchcase(module, word) or fnmatchcase(module, word + ".*")


def _one(scheme: Scheme, ignore: tuple[str, ...], match: Match, always: tuple[str, ...] = ()) -> Rules:
    """`always`: also ignored. Entries of `ignore` that it covers are dropped."""
    said = [word for word in ignore if not any(match(word, known) for known in always)]
    return Rules(((("Linear",), scheme),), (*always, *said), match, unsaid=always)


def _fp8(config: Mapping[str, Any]) -> Rules:
    if config.get("fmt", "e4m3") not in ("e4m3", "float8_e4m3fn"):
        raise Unsupported(f"quantization_config: fmt {config['fmt']!r}; supported: e4m3")
    ignore = _words(config, "modules_to_not_convert") or _words(config, "ignored_layers")
    block, scales = config.get("weight_block_size"), config.get("scale_fmt")
    if scales not in (None, "ue8m0"):
        raise Unsupported(f"quantization_config: scale_fmt {scales!r}; supported: ue8m0")
    if block is None:
        return _one(Fp8Tensor(), ignore, by_path, _NEVER_FP8)
    if list(block) == [1, 32]:
        return _one(MxFp8(), ignore, by_path, _NEVER_FP8)
    return _one(Fp8Block(_block(block), scales == "ue8m0"), ignore, by_path, _NEVER_FP8)


def _mxfp8(config: Mapping[str, Any]) -> Rules:
    return _fp8({**config, "weight_block_size": [1, 32]})


def _w8a8_fp8(config: Mapping[str, Any]) -> Rules:
    return _one(Fp8Channel(), _words(config, "modules_to_not_convert"), by_path, _NEVER_FP8)


def _gpt_oss(config: Mapping[str, Any]) -> Rules:
    ignore = _words(config, "modules_to_not_convert")
    return Rules(((("mlp.experts.gate_up_proj", "mlp.experts.down_proj"), ExpertsMxFp4()),), ignore, by_path)


def _modelopt(config: Mapping[str, Any]) -> Rules:
    inner = config.get("quantization", config)  # nested in hf_quant_config.json
    algorithm = inner.get("quant_algo")
    schemes: dict[Any, Scheme] = {"NVFP4": Nvfp4(), "FP8": Fp8Tensor(scalar=True)}
    if algorithm not in schemes:
        raise Unsupported(f"quantization_config: quant_algo {algorithm!r} of ModelOpt; supported: {', '.join(schemes)}")
    if algorithm == "NVFP4" and inner.get("group_size", 16) != 16:
        raise Unsupported(f"quantization_config: NVFP4 needs group_size 16, not {inner['group_size']}")
    return _one(schemes[algorithm], _words(inner, "ignore") or _words(inner, "exclude_modules"), by_pattern)


def _compressed(config: Mapping[str, Any]) -> Rules:
    for word in "transform_config", "sparsity_config":  # both change the meaning of the bytes
        if config.get(word) and config[word].get("format") != "dense":
            raise Unsupported(f"quantization_config: {word} {config[word]!r}")
    groups = []
    for group in config["config_groups"].values():
        weights = group.get("weights")
        if weights is not None:
            scheme = _compressed_scheme(group.get("format") or config["format"], weights)
            groups.append((_words(group, "targets"), scheme))
    if not groups:
        raise InvalidArgument("quantization_config: no group in config_groups quantises weights")
    return Rules(tuple(groups), _words(config, "ignore"), by_name)


def _compressed_scheme(format: str, weights: Mapping[str, Any]) -> Scheme:
    bits, kind, strategy = weights.get("num_bits"), weights.get("type"), weights.get("strategy")
    symmetric = weights.get("symmetric", True)
    group: Any = weights.get("group_size")
    if strategy == "group" and (type(group) is not int or group < 1):
        raise InvalidArgument(f"quantization_config: group_size must be a number of columns, not {group!r}")
    if type(symmetric) is not bool:
        raise InvalidArgument(f"quantization_config: symmetric must be true or false, not {symmetric!r}")
    if weights.get("actorder") not in (None, False, "static", "weight"):  # these do not reorder columns
        raise Unsupported(f"quantization_config: actorder {weights['actorder']!r}: reordered columns are not supported")
    if format == "pack-quantized" and bits in (4, 8) and kind == "int" and strategy in ("group", "channel"):
        return (Int4 if bits == 4 else PackedInt8)(group if strategy == "group" else 0, symmetric)
    eight = (bits, kind, symmetric) == (8, "int", True)
    if eight and format in ("int-quantized", "naive-quantized") and strategy in ("tensor", "channel"):
        return Int8(strategy)
    if format in ("float-quantized", "naive-quantized") and (bits, kind, symmetric) == (8, "float", True):
        if strategy in ("tensor", "channel"):
            return CompressedFp8(strategy)
        if strategy == "block":
            return CompressedFp8("block", _block(weights["block_structure"]))
    if format == "nvfp4-pack-quantized" and (bits, kind, symmetric, group) == (4, "float", True, 16):
        return CompressedNvfp4()
    if format == "mxfp8-quantized" and group == 32:
        return MxFp8("weight_scale", "round")
    if format == "mxfp4-pack-quantized" and group == 32:
        return MxFp4()
    raise Unsupported(
        f"quantization_config: compressed-tensors' {format} of {bits} bits, {kind}, by {strategy}, "
        f"{'symmetric' if symmetric else 'asymmetric'}"
    )


def _words(config: Mapping[str, Any], key: str) -> tuple[str, ...]:
    words = config.get(key) or ()
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) for word in words):
        raise InvalidArgument(f"quantization_config: {key} must be a list of names, not {words!r}")
    return tuple(words)


def _block(numbers: Any) -> tuple[int, int]:
    rows, columns = numbers
    if not all(type(size) is int and 0 < size < 1 << 31 for size in numbers):
        raise InvalidArgument(f"quantization_config: a block must have rows and columns, not {numbers}")
    return rows, columns


_METHODS: dict[Any, Callable[[Mapping[str, Any]], Rules]] = {
    "fp8": _fp8,
    "mxfp8": _mxfp8,
    "w8a8_fp8": _w8a8_fp8,
    "modelopt": _modelopt,
    "modelopt_fp4": _modelopt,
    "compressed-tensors": _compressed,
    "mxfp4": _gpt_oss,
}
