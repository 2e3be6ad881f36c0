"""Calls a function after the program imports a module: PyTorch before 2.5 does not load slurm:// by itself."""

# SPDX-License-Identifier: Apache-2.0

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Callable, Optional


def call_after_import(wanted: str, then: Callable[[], None]) -> None:
    class Hook(MetaPathFinder):
        def find_spec(self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None) -> Optional[ModuleSpec]:
            if name != wanted:
                return None
            sys.meta_path.remove(self)
            spec = find_spec(name)
            if spec is None or spec.loader is None:
                return spec
            execute = spec.loader.exec_module

            def execute_and_call(module: ModuleType) -> None:
                execute(module)
                then()

            spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, Hook())
