"""Replaces vLLM's grammar packages, which `scripts/gpu pack` omits: they can be imported and do nothing."""

import importlib.abc
import importlib.machinery
import sys
import types

NAMES = {"xgrammar", "llguidance"}


class Anything:
    def __init__(self, *arguments, **options):
        pass

    def __call__(self, *arguments, **options):
        return Anything()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()

    def __class_getitem__(cls, key):
        return cls


class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        is_ours = name.split(".")[0] in NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if is_ours else None

    def create_module(self, spec):
        module = Stub(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())
