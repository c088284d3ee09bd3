"""Loads units from a folder's files."""

from __future__ import annotations

import errno
import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import os
import stat
import sys
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Mapping, Sequence

from ringway.placement import properties
from ringway.placement.unit import Unit

from . import failure

MOST_FILES = 256
LARGEST_FILE = 1 << 20
KINDS = {"filter": "do_filter", "score": "do_score", "balance": "do_balance"}
_CONTAINERS = (list, dict, set, bytearray)


def read_folder(folder: str) -> tuple[dict[str, bytes], dict[str, str]]:
    """The sources of a folder by file name, and errors of other files. Only files of the folder itself are
    searched for units; those in subfolders can be imported."""
    sources: dict[str, bytes] = {}
    wrong: dict[str, str] = {}
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        owner = os.fstat(opened).st_uid
        names = [name for name in os.listdir(opened) if name.endswith(".py") and name[0] != "."]
        names.sort()
        for name in names[MOST_FILES:]:
            wrong[name] = f"is ignored: more than {MOST_FILES} files"
        for name in names[:MOST_FILES]:
            try:
                sources[name] = _read(opened, name, owner)
            except OSError as error:
                wrong[name] = f"can't be read: {error.strerror}"
            except ValueError as error:
                wrong[name] = str(error)
    finally:
        os.close(opened)
    return sources, wrong


def _read(folder: int, name: str, owner: int) -> bytes:
    """A file of a folder."""
    if not name[:-3].isidentifier():
        raise ValueError("is not a module: a name consists of letters, digits and _")
    # Attack: a symbolic or hard link to a file that its creator can't read (a hard link shows in the owner), or
    # an endless pipe.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(name, flags, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError("is a link, which is not followed") from None
        raise
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is no regular file")
        if status.st_uid != owner:
            raise ValueError(f"belongs to user {status.st_uid}, and its folder to user {owner}")
        source = file.read(LARGEST_FILE + 1)
    if len(source) > LARGEST_FILE:
        raise ValueError(f"is larger than {LARGEST_FILE} bytes")
    return source


def fingerprint(folder: str) -> tuple[tuple[str, int, int, int], ...]:
    """A value that changes whenever a file of the folder does."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    status = entry.stat(follow_symlinks=False)
                    found.append((entry.name, status.st_mtime_ns, status.st_size, status.st_ino))
    except OSError:
        return ()
    return tuple(sorted(found))


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the folder's modules from the sources that were read, so that a partly written file is never
    executed."""

    def __init__(self, folder: str, sources: Mapping[str, bytes]) -> None:
        self._folder = folder
        self._sources = sources

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is not None or fullname + ".py" not in self._sources:
            return None
        filename = os.path.join(self._folder, fullname + ".py")
        return importlib.util.spec_from_loader(fullname, self, origin=filename, is_package=False)

    def get_source(self, fullname: str) -> str:
        return importlib.util.decode_source(self._sources[fullname + ".py"])

    def get_code(self, fullname: str) -> Any:
        filename = os.path.join(self._folder, fullname + ".py")
        return compile(self._sources[fullname + ".py"], filename, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = os.path.join(self._folder, module.__name__ + ".py")
        exec(self.get_code(module.__name__), module.__dict__)


@dataclass
class Loaded:
    """A unit's class and its properties."""

    unit: type
    name: str
    kinds: list[str]
    description: dict[str, str]
    validation: str
    style: str
    file: str
    line: int
    allowed: dict[str, Any]

    def described(self) -> dict[str, Any]:
        """As returned by `discover`."""
        return {
            "name": self.name,
            "kinds": self.kinds,
            "description": self.description,
            "properties": self.validation,
            "style": self.style,
            "file": self.file,
            "line": self.line,
        }


def load_file(name: str) -> list[Loaded]:
    """The units of one file. `Sources` must be active."""
    module = importlib.import_module(name[:-3])
    found = []
    for unit_name, unit in sorted(vars(module).items()):
        # An imported class belongs to the file that defines it.
        if not inspect.isclass(unit) or unit.__module__ != module.__name__ or inspect.isabstract(unit):
            continue
        if unit_name != unit.__name__:
            continue
        kinds = [kind for kind, method in KINDS.items() if callable(getattr(unit, method, None))]
        if kinds:
            found.append(_loaded(unit, kinds, name, module))
    return found


def _loaded(unit: type, kinds: list[str], file: str, module: ModuleType) -> Loaded:
    validation = getattr(unit, "properties_validation", "")
    if not isinstance(validation, str):
        raise properties.WrongProperty(f"{unit.__name__}.properties_validation must be text")
    try:
        allowed = properties.parse(validation)
    except properties.WrongProperty as wrong:
        raise properties.WrongProperty(f"{unit.__name__}.properties_validation: {wrong}") from None
    description = {}
    for kind in kinds:
        words = getattr(unit, KINDS[kind]).__doc__ or unit.__doc__ or ""
        description[kind] = failure.cut(inspect.cleandoc(words), failure.LONGEST_TEXT)
    return Loaded(
        unit=unit,
        name=unit.__name__,
        kinds=kinds,
        description=description,
        validation=validation,
        style=_style(unit, module),
        file=file,
        line=_line(unit),
        allowed=allowed,
    )


def _line(unit: type) -> int:
    for kind in KINDS.values():
        code = getattr(getattr(unit, kind, None), "__code__", None)
        if code is not None:
            return int(code.co_firstlineno)
    return 0


def _style(unit: type, module: ModuleType) -> str:
    if issubclass(unit, Unit):
        return "typed"
    wanted = getattr(unit, "isolation", None)
    if wanted is not None:
        return "ovirt" if wanted == "resident" else "ovirt-fresh"
    # oVirt starts a process per call, so its plugins may cache data in containers that are never cleared.
    tables = [*vars(module).items(), *(pair for base in unit.__mro__[:-1] for pair in vars(base).items())]
    kept = any(isinstance(value, _CONTAINERS) for name, value in tables if not name.startswith("__"))
    return "ovirt-fresh" if kept else "ovirt"


def install(folder: str, sources: Mapping[str, bytes]) -> None:
    """Makes the folder's modules and subfolders importable in this process."""
    sys.dont_write_bytecode = True
    sys.meta_path.insert(0, Sources(folder, sources))
    sys.path.append(folder)
