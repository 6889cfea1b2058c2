"""Finds a class by import path: `pkg.module.Class`, `pkg.module:Class` or `path/to/file.py:Class`.

The code that is found is a deployment's own, and `describe` says to its author why it fails.
"""

import hashlib
import importlib
import importlib.util
import os
import pkgutil
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from engine.protocol.did_you_mean import did_you_mean

_WEIR = tuple(str(Path(__file__).parents[2] / room) + os.sep for room in ("engine", "hooks", "proxy"))
_PYTHON = (sysconfig.get_path("stdlib") + os.sep, "<frozen ")
"""The beginnings of the paths of Python's own files. Paths of installed packages may begin so, too."""
_MAX_CAUSES = 5
_MAX_CLASSES = 5


class ImportPathError(Exception):
    """No class has this import path. The message continues a sentence that begins with the path."""


def find_class(path: str) -> type:
    """Import the class. Raises `ImportPathError`."""
    module_name, class_name = _split(path)
    module = _load_file(module_name) if module_name.endswith(".py") else _import(module_name)
    found = getattr(module, class_name, None) or _module_in(module, class_name)
    if isinstance(found, ModuleType) and found.__name__ == f"{module.__name__}.{class_name}":
        raise ImportPathError(f"names a module, and no class of it{_to_write(path, '.', found)}")
    if not isinstance(found, type):
        classes = [name for name, one in vars(module).items() if isinstance(one, type)]
        own = _classes_of(module)
        hint = did_you_mean(class_name, classes) or (f"; it has {', '.join(own)}" if own else "")
        raise ImportPathError(f"is not there: {module_name} has no class {class_name!r}{hint}")
    return found


def _module_in(package: ModuleType, name: str) -> ModuleType | None:
    """The package's module of this name; None: there is none."""
    known = [one.name for one in pkgutil.iter_modules(getattr(package, "__path__", None) or [])]
    return _import(f"{package.__name__}.{name}") if name in known else None


def _classes_of(module: ModuleType) -> list[str]:
    """The names of classes that the module itself defines: the first ones."""
    names = [name for name, one in vars(module).items() if isinstance(one, type) and name[0] != "_"]
    return [name for name in names if vars(module)[name].__module__ == module.__name__][:_MAX_CLASSES]


def _to_write(path: str, separator: str, module: ModuleType) -> str:
    """The paths of the module's classes, as the end of a sentence."""
    own = [f"{path}{separator}{name}" for name in _classes_of(module)]
    return f": write {' or '.join(own)}" if own else ", and has none"


def search_working_folder_last() -> None:
    """Let Python import modules from the working folder, after all other folders."""
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())


def describe(error: BaseException) -> str:
    """The error's type, its message and the line that raised it, then the same of the errors that caused it.

    The line is the last one that is neither Python's nor Weir's. A message may hold what the code was called
    with, so this is for code that has seen no user's text.
    """
    return ", caused by ".join(map(_description, _with_causes(error)))


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    one: BaseException | None = error
    for _ in range(_MAX_CAUSES):
        if one is None:
            return
        yield one
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)


def _description(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}".removesuffix(": ")
    frames = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if _is_deployments(frame.f_code.co_filename)
    ]
    return f"{text} ({frames[-1]})" if frames else text


def _is_deployments(file: str) -> bool:
    """Whether the file is neither Weir's nor Python's own."""
    return not file.startswith(_WEIR) and ("site-packages" in file or not file.startswith(_PYTHON))


def _split(path: str) -> tuple[str, str]:
    if path.endswith(".py"):
        raise ImportPathError(f"names a file, and no class of it{_to_write(path, ':', _load_file(path))}")
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
        hint = _near_module(module_name, error)
        raise ImportPathError(f"could not be imported: {describe(error)}{hint}") from error


def _near_module(module_name: str, error: BaseException) -> str:
    """The module that was meant, if the module itself is missing, or a package that it is in."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if not missing or not f"{module_name}.".startswith(f"{missing}."):
        return ""
    package, _, name = missing.rpartition(".")
    path = getattr(sys.modules.get(package), "__path__", None) if package else None
    known = [one.name for one in pkgutil.iter_modules(path) if one.name[0] != "_"]
    return "" if name in known else did_you_mean(name, known)


def _load_file(file_name: str) -> ModuleType:
    file = Path(os.path.expanduser(file_name)).resolve()
    try:
        source = file.read_bytes()
    except OSError:
        hint = did_you_mean(file.name, [other.name for other in file.parent.glob("[!_]*.py")])
        raise ImportPathError(f"does not exist: no file {file}{hint}") from None
    # A file is one module, however often it is named, so that its classes share its variables. A changed
    # file is another module: objects built from the old file keep the old module.
    digest = hashlib.sha256(str(file).encode() + b"\0" + source).hexdigest()[:12]
    name = f"weir_file_{file.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        # Not by the loader: its cache of compiled files misses two changes within a second.
        exec(compile(source, file, "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ImportPathError(f"could not be imported: {describe(error)}") from error
    return module
