"""Paths as the cell gives them: those under the notebook's folder lead into the rank's mirror of it.

Relative paths do so by themselves. Absolute ones are changed where Python's own functions, TensorFlow's file functions
and h5py take them. Before any of these writes a file that the mirror only links to, the rank gets a copy of its own.

Under an overlay, paths in the notebook's folder mean what they say. What ranks other than the chief write beside it, by
a relative path, goes to the mirror still.
"""

from __future__ import annotations

import builtins
import errno
import functools
import io
import os
import pathlib
import shutil
import sys
from typing import Any, Callable, Iterable

from .mirror import Mirror, is_folder
from .names import is_below

_getcwd, _chdir = os.getcwd, os.chdir

#: Functions of `os` that take a path, or two, and only look.
_LIST = ("listdir", "scandir")
_LOOK = ("stat", "lstat", "access", "readlink")
#: Those that change a file and leave its content.
_CHANGE_FILE = ("chmod", "utime", "truncate")
#: Those that make or remove a name in a folder.
_CHANGE = ("mkdir", "rmdir", "remove", "unlink")
_CHANGE_TWO = ("rename", "replace", "link", "symlink")
#: The same of TensorFlow's `_pywrap_file_io`. What writes comes first in each call.
_TF_LOOK = (
    "BufferedInputStream",
    "FileExists",
    "ReadFileToString",
    "GetMatchingFiles",
    "IsDirectory",
    "Stat",
    "GetChildren",
)
_TF_CHANGE = ("CreateDir", "RecursivelyCreateDir", "DeleteFile", "DeleteRecursively")
_TF_CHANGE_TWO = ("CopyFile", "RenameFile")


class Paths:
    """notebook: the folder that is mirrored, or None. is_chief: paths elsewhere mean what they say. Where
    ranks come and go, the attribute `is_chief` says it anew each time.

    is_covered: by an overlay; the notebook's folder is not mirrored then.

    A rank that is not the chief never leaves the mirror by `os.chdir`: folders elsewhere are mirrored then.
    """

    def __init__(
        self, mirror: Mirror, scratch: str, notebook: str | None, is_chief: bool, is_covered: bool = False
    ) -> None:
        self._mirror = mirror
        self.is_chief: Callable[[], bool] = lambda: is_chief
        # `os.getcwd` returns the second, where TMPDIR leads through a link.
        self._scratch = (os.path.abspath(scratch), os.path.realpath(scratch))
        self._covered = (os.path.abspath(notebook), os.path.realpath(notebook)) if notebook and is_covered else ()
        self._mirrored = [notebook] if notebook and notebook != os.sep and not is_covered else []

    def read(self, path: Any) -> Any:
        """`path`, or what the rank has in its place."""
        text = _text(path)
        if text is None:
            return path
        replacement = self._replacement(self._absolute(text), is_relative=not os.path.isabs(text))
        return path if replacement is None else _like(replacement, path)

    def written(self, path: Any, content: bool = False) -> Any:
        """The same for a file that is about to be written. content: what it has is kept."""
        return self._changed(path, lambda absolute: self._mirror.make_private(absolute, content))

    def listed(self, path: Any) -> Any:
        """The same for a folder that is about to be listed."""
        return self._changed(path, self._mirror.open_folders)

    def renamed(self, path: Any) -> Any:
        """The same for a name that is about to be made or removed in its folder."""
        return self._changed(path, self._mirror.make_parents_private)

    def _changed(self, path: Any, prepare: Callable[[str], None]) -> Any:
        changed = self.read(path)
        text = _text(changed)
        if text is not None:
            prepare(self._absolute(text))
        return changed

    def apart(self, path: str) -> str:
        """Where this rank writes what Keras writes on all ranks: the chief where it says, others in their mirror."""
        absolute = self._absolute(path)
        if self.is_chief() or self._in_scratch(absolute) or self._is_covered(absolute):
            return str(self.written(path))
        self._mirror.add(os.path.dirname(absolute), deep=False)
        mirrored = self._mirror.of(absolute)
        self._mirror.make_private(mirrored, False)
        return mirrored

    def read_apart(self, path: str) -> str:
        """Where this rank reads it again. What it wrote apart before it became the chief is put where the chief writes,
        unless something newer is there.
        """
        absolute = self._absolute(path)
        mirrored = self._mirror.of(absolute)
        if not self.is_chief():
            return mirrored if os.path.lexists(mirrored) else str(self.read(path))
        if not (self._in_scratch(absolute) or self._is_covered(absolute) or self._is_mirrored(absolute)):
            self._put_in_place(mirrored, absolute)
        return str(self.read(path))

    def _put_in_place(self, mirrored: str, real: str) -> None:
        is_chief, self.is_chief = self.is_chief, lambda: False  # for whom paths of the mirror are what they are
        try:
            if os.path.isfile(mirrored) and not os.path.islink(mirrored) and not _is_newer(real, mirrored):
                shutil.copy2(mirrored, real)
        finally:
            self.is_chief = is_chief

    def chdir(self, path: Any) -> None:
        """`os.chdir`."""
        text = _text(path)
        if text is None:
            return _chdir(path)
        at = self._mirror.original(_getcwd()) or _getcwd()
        absolute = os.path.normpath(os.path.join(at, text))
        absolute = self._mirror.original(absolute) or absolute
        mirrored = self._is_mirrored(absolute)
        if self._in_scratch(absolute) or self._is_covered(absolute) or (self.is_chief() and not mirrored):
            return _chdir(absolute)
        if not is_folder(self._mirror.of(absolute)) and not is_folder(absolute):
            return _chdir(path)  # which raises
        mirror = self._mirror.add(absolute, deep=not mirrored)
        _chdir(mirror)
        if not mirrored and absolute != os.sep:
            self._mirrored.append(absolute)

    def _absolute(self, text: str) -> str:
        return os.path.normpath(os.path.join(_getcwd(), text))

    def _replacement(self, absolute: str, is_relative: bool) -> str | None:
        """What replaces an absolute path; None for itself. is_relative: the cell has given it as a relative one."""
        original = self._mirror.original(absolute)
        if original is not None:
            # The chief's "../x" is the file beside the notebook's folder.
            is_real = self._is_covered(original) or (self.is_chief() and not self._is_mirrored(original))
            return original if is_real else None
        if self._in_scratch(absolute) or self._is_covered(absolute):
            return None
        if self._is_mirrored(absolute):
            return self._mirror.of(absolute)
        if is_relative and self._covered and not self.is_chief() and self._is_covered(_getcwd()):
            self._mirror.add(os.path.dirname(self._covered[-1]), deep=False)
            return self._mirror.of(absolute)
        return None

    def _is_mirrored(self, absolute: str) -> bool:
        return _is_below_any(absolute, self._mirrored)

    def _is_covered(self, absolute: str) -> bool:
        return _is_below_any(absolute, self._covered)

    def _in_scratch(self, absolute: str) -> bool:
        return _is_below_any(absolute, self._scratch)

    # -- hooks

    def install(self) -> None:
        """Hook the functions of this process. Once a process, after TensorFlow is imported."""
        for name in _LOOK:
            _replace(os, name, self.read)
        for name in _LIST:
            self._replace_list(name)
        for name in _CHANGE:
            _replace(os, name, self.renamed)
        for name in _CHANGE_TWO:
            _replace(os, name, self.renamed, self.renamed)
        if self._covered:
            for name in ("rename", "replace"):
                self._replace_rename(name)
        for name in _CHANGE_FILE:
            _replace(os, name, functools.partial(self.written, content=True))
        _set_hook(os, "chdir", _chdir, self.chdir)
        self._replace_open()
        accessor = getattr(pathlib, "_NormalAccessor", None)  # of Python 3.8 to 3.10
        for name in (*_LIST, *_LOOK, *_CHANGE_FILE, *_CHANGE, "rename", "replace"):
            if accessor is not None and hasattr(accessor, name):
                setattr(accessor, name, staticmethod(getattr(os, name)))
        self._hook_tensorflow()
        self._hook_h5py()

    def _replace_open(self) -> None:
        plain, plain_os = builtins.open, os.open

        @functools.wraps(plain)
        def open_(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            return plain(self._opened(file, mode), mode, *args, **kwargs)

        @functools.wraps(plain_os)
        def os_open(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if kwargs.get("dir_fd") is None:
                writes = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
                mode = "r" if not writes else "x" if flags & os.O_EXCL else "w" if flags & os.O_TRUNC else "a"
                path = self._opened(path, mode)
            return plain_os(path, flags, *args, **kwargs)

        for module in (builtins, io):
            _set_hook(module, "open", plain, open_)
        _set_hook(os, "open", plain_os, os_open)

    def _replace_list(self, name: str) -> None:
        plain = getattr(os, name)

        @functools.wraps(plain)
        def hooked(path: Any = None) -> Any:
            return plain(self.listed("." if path is None else path))

        _set_hook(os, name, plain, hooked)

    def _replace_rename(self, name: str) -> None:
        """Have what an overlay does not rename moved: a folder of the notebook, and into or out of its folder."""
        plain = getattr(os, name)

        @functools.wraps(plain)
        def hooked(src: Any, dst: Any, **kwargs: Any) -> None:
            try:
                plain(src, dst, **kwargs)
                return
            except OSError as error:
                texts = [_text(src), _text(dst)]
                if error.errno != errno.EXDEV or any(value is not None for value in kwargs.values()):
                    raise
                if not any(text is not None and self._is_covered(self._absolute(text)) for text in texts):
                    raise
            if os.path.isdir(src) and not os.path.islink(src):
                if os.path.isdir(dst):
                    os.rmdir(dst)
                shutil.copytree(src, dst, symlinks=True)
                shutil.rmtree(src)
            elif os.path.isdir(dst):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), dst)
            else:
                shutil.copy2(src, dst, follow_symlinks=False)
                os.unlink(src)

        _set_hook(os, name, plain, hooked)

    def _opened(self, path: Any, mode: Any) -> Any:
        mode = str(mode)
        if "w" in mode and mode != "w-":
            return self.written(path)
        if "a" in mode or "+" in mode:
            return self.written(path, content=True)
        return self.renamed(path) if "x" in mode or mode == "w-" else self.read(path)

    def _hook_tensorflow(self) -> None:
        files = sys.modules.get("tensorflow.python.lib.io._pywrap_file_io")
        if files is None:
            return
        for name in _TF_LOOK:
            _replace(files, name, self.read)
        for name in _TF_CHANGE:
            _replace(files, name, self.renamed)
        for name in _TF_CHANGE_TWO:
            _replace(files, name, self.read if name == "CopyFile" else self.renamed, self.written)
        _replace(files, "WriteStringToFile", self.written)
        plain = files.WritableFile
        _set_hook(files, "WritableFile", plain, lambda path, mode: plain(self._opened(path, _text(mode)), mode))

    def _hook_h5py(self) -> None:
        h5py = sys.modules.get("h5py")
        if h5py is None:
            return
        plain = h5py.File.__init__

        @functools.wraps(plain)
        def init(file: Any, name: Any, *args: Any, **kwargs: Any) -> None:
            mode = args[0] if args else kwargs.get("mode")
            plain(file, self._opened(name, mode or "r"), *args, **kwargs)

        h5py.File.__init__ = init


def _replace(owner: Any, name: str, *changes: Callable[[Any], Any]) -> None:
    """Have a function change its first arguments."""
    plain = getattr(owner, name, None)
    if plain is None:
        return

    @functools.wraps(plain)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        if not any(kwargs.get(name) is not None for name in ("dir_fd", "src_dir_fd", "dst_dir_fd")):
            args = (*(change(arg) for change, arg in zip(changes, args)), *args[len(changes) :])
        return plain(*args, **kwargs)

    _set_hook(owner, name, plain, hooked)


def _set_hook(owner: Any, name: str, plain: Any, hooked: Any) -> None:
    for supporting in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
        if plain in supporting:
            supporting.add(hooked)
    setattr(owner, name, hooked)


def _is_newer(path: str, other_path: str) -> bool:
    """Whether there is a file at `path` that was written after the other one."""
    return os.path.exists(path) and os.path.getmtime(path) > os.path.getmtime(other_path)


def _is_below_any(path: str, folders: Iterable[str]) -> bool:
    """Whether a path is one of these folders, or in one."""
    return any(is_below(path, folder) for folder in folders)


def _text(path: Any) -> str | None:
    """A path as text; None for what is none: a file's number, an open file, a URI."""
    if isinstance(path, os.PathLike):
        path = os.fspath(path)
    if isinstance(path, bytes):
        path = os.fsdecode(path)
    return path if isinstance(path, str) and path and "://" not in path and "\0" not in path else None


def _like(replacement: str, path: Any) -> Any:
    return os.fsencode(replacement) if isinstance(path, bytes) else replacement
