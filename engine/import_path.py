"""Finds a class by import path: `pkg.module.Class`, `pkg.module:Class` or `path/to/file.py:Class`."""

import hashlib
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType


class ImportPathError(Exception):
    """No class has this import path. The message continues a sentence that begins with the path."""


def find_class(path: str) -> type:
    """Import the class. Raises `ImportPathError`."""
    module_name, class_name = _split(path)
    module = _load_file(module_name) if module_name.endswith(".py") else _import(module_name)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise ImportPathError(f"is not there: {module_name} has no class {class_name!r}")
    return found


def search_working_folder_last() -> None:
    """Let Python import modules from the working folder, after all other folders."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _split(path: str) -> tuple[str, str]:
    separator = ":" if ":" in path else "."
    module_name, _, class_name = path.rpartition(separator)
    if not module_name or not class_name.isidentifier():
        raise ImportPathError(
            "names no class; write pkg.module.Class, pkg.module:Class or path/to/file.py:Class"
        )
    return module_name, class_name


def _import(module_name: str) -> ModuleType:
    search_working_folder_last()
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise ImportPathError(f"could not be imported: {describe(error)}") from error


def _load_file(file_name: str) -> ModuleType:
    file = Path(file_name).resolve()
    # A file is one module, however often it is named, so that its classes share the module's variables.
    name = f"weir_file_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None or not file.is_file():
        raise ImportPathError(f"is not there: there is no file {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ImportPathError(f"could not be imported: {describe(error)}") from error
    return module
