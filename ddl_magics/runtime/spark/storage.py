"""A folder of the storage that the cluster's Spark knows, through Hadoop: HDFS, Azure, S3, a disk.

The JVM itself copies files between the folder and the driver's disk: no byte passes through Python, and no library is
installed for it. It starts no Spark job. A file gets its name only when it is complete, and none is overwritten.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from typing import Any, Callable, Iterator, TypeVar

from . import spark_error
from .pyspark_types import SparkContext

#: How long a storage may take to answer before the training begins.
PROBE_SECONDS = 30.0
SHOWN_FILES = 3
#: The folder with a batch's program, and the file that a batch leaves, also one that has failed.
_PROGRAM, EVENTS = re.compile(r"\..+\.batch"), "events.jsonl"

_Answer = TypeVar("_Answer")


class StorageError(Exception):
    """The folder cannot be used: one line, which names the option that asked for it."""


def program_name(run: str) -> str:
    """The folder with the program of a batch, below the run's --out, which counts as empty with it."""
    return ".%s.batch" % run


class Folder:
    """The folder `uri`, on the session's default file system if that names no scheme. A context manager.

    option: as the user typed it, for messages. run: id of the run, in the names of unfinished files. Every method may
    raise `StorageError`, and waits as long as the storage does.
    """

    def __init__(self, sc: SparkContext, option: str, uri: str, run: str) -> None:
        self._sc, self._run, self._subject = sc, run, "%s %s" % (option, uri)
        self._uri_as_typed = uri
        #: The JVM's FileSystem and Path, once the folder is entered.
        self._fs: Any = None
        self._path: Any = None

    def __enter__(self) -> Folder:
        """Open the file system: an instance of our own, as the session's is shared with the user's cells."""
        jvm = self._sc._jvm
        with self._explained():
            path = jvm.org.apache.hadoop.fs.Path(self._uri_as_typed)
            conf = self._sc._jsc.hadoopConfiguration()
            at = path.toUri() if path.toUri().getScheme() else jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf)
            self._fs = jvm.org.apache.hadoop.fs.FileSystem.newInstance(at, conf)
            self._fs.setWriteChecksum(False)  # on a local disk, a hidden file beside each
            self._path = self._fs.makeQualified(path)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(Exception):  # the files are complete, whatever closing says
            self._fs.close()

    @property
    def uri(self) -> str:
        """The folder's full URI."""
        uri: str = self._path.toString()
        return "file://" + uri[5:] if uri.startswith("file:/") and not uri.startswith("file://") else uri

    def probe(self) -> None:
        """Create the folder, and write and delete a file in it. Refuses a folder that holds files, but for programs."""
        with self._explained():
            if self._fs.exists(self._path):
                self._check_empty()
            elif not self._fs.mkdirs(self._path):
                raise StorageError("%s: the folder cannot be made there: name another" % self._subject)
            trial = self._inside(".%s.trial" % self._run)
            stream = self._fs.create(trial, False)
            stream.write(bytearray(b"ddl_magics"))
            stream.close()
            if not self._fs.delete(trial, False):
                raise StorageError("%s: files cannot be deleted there: ask for the right to" % self._subject)

    def _check_empty(self) -> None:
        if not self._fs.getFileStatus(self._path).isDirectory():
            raise StorageError("%s: there is a file of that name: name a folder" % self._subject)
        files = [name for name in self._names() if not _PROGRAM.fullmatch(name)]
        if files == [EVENTS]:
            raise StorageError(
                "%s: the folder has the events of a batch without a model, which has failed: read them, then remove "
                "them (hadoop fs -rm %s/%s), or name another folder" % (self._subject, self.uri.rstrip("/"), EVENTS)
            )
        if files:
            examples = ", ".join(files[:SHOWN_FILES]) + (", ..." if len(files) > SHOWN_FILES else "")
            raise StorageError(
                "%s: the folder holds files (%s), and none is written over: name another folder, or empty it"
                % (self._subject, examples)
            )

    def names(self) -> list[str]:
        """The names in the folder, sorted; none where there is no folder."""
        with self._explained("cannot be read"):
            return self._names() if self._fs.exists(self._path) else []

    def _names(self) -> list[str]:
        return sorted(status.getPath().getName() for status in self._fs.listStatus(self._path))

    def create(self, name: str) -> bool:
        """Make the empty file `name`; False where it exists. One of two who try at once gets True, but on S3."""
        with self._explained():
            if self._fs.exists(self._inside(name)):
                return False
            try:
                self._fs.create(self._inside(name), False).close()
            except Exception as error:  # py4j's
                java = getattr(error, "java_exception", None)
                if java is not None and java.getClass().getSimpleName() == "FileAlreadyExistsException":
                    return False
                raise
        return True

    def upload(self, file: str, name: str) -> str:
        """Copy the driver's `file`, which may be a folder, into the folder as `name`; returns its URI."""
        unfinished, target = self._inside(".%s.%s.part" % (self._run, name)), self._inside(name)
        with self._explained():
            if self._fs.exists(target):
                raise StorageError("%s: another run has written %s there meanwhile" % (self._subject, name))
            try:
                self._fs.copyFromLocalFile(False, True, self._on_disk(file), unfinished)
                if not self._fs.rename(unfinished, target):
                    raise StorageError("%s: %s could not be given its name" % (self._subject, name))
            except Exception:
                with contextlib.suppress(Exception):  # the error before is the reason
                    self._fs.delete(unfinished, True)
                raise
        return "%s/%s" % (self.uri.rstrip("/"), name)

    def download(self, name: str, file: str) -> None:
        """Copy the file or folder `name` of the folder to the driver's `file`."""
        with self._explained("cannot be read"):
            self._fs.copyToLocalFile(False, self._inside(name), self._on_disk(file), True)

    def delete(self, name: str) -> None:
        """Delete the file `name` of the folder."""
        with self._explained():
            self._fs.delete(self._inside(name), False)

    def _inside(self, name: str) -> Any:
        return self._sc._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _on_disk(self, file: str) -> Any:
        return self._sc._jvm.org.apache.hadoop.fs.Path("file://" + os.path.abspath(file))

    @contextlib.contextmanager
    def _explained(self, problem: str = "cannot be written to") -> Iterator[None]:
        """Turns the JVM's exceptions into `StorageError`s."""
        try:
            yield
        except StorageError:
            raise
        except Exception as error:  # py4j's, of many kinds
            java = getattr(error, "java_exception", None)
            kind = type(error).__name__ if java is None else java.getClass().getSimpleName()
            reason = "%s: %s" % (kind, spark_error.cause(error))
            raise StorageError("%s %s: %s" % (self._subject, problem, reason)) from None


def check(sc: SparkContext, option: str, uri: str, run: str) -> None:
    """Find out before the training whether files can be written to `uri`. `StorageError` within `PROBE_SECONDS`."""
    _bounded(sc, option, uri, run, Folder.probe)


def names(sc: SparkContext, option: str, uri: str, run: str) -> list[str]:
    """`Folder.names` within `PROBE_SECONDS`."""
    return _bounded(sc, option, uri, run, Folder.names)


def _bounded(sc: SparkContext, option: str, uri: str, run: str, ask: Callable[[Folder], _Answer]) -> _Answer:
    """`ask(folder)` in a thread, as Hadoop itself tries for many minutes to reach a host that does not exist."""
    answers: list[_Answer] = []
    problems: list[StorageError] = []

    def open_and_ask() -> None:
        try:
            with Folder(sc, option, uri, run) as folder:
                answers.append(ask(folder))
        except StorageError as error:
            problems.append(error)

    thread = threading.Thread(target=open_and_ask, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    if thread.is_alive():
        raise StorageError("%s %s: no answer within %g s: is the address right?" % (option, uri, PROBE_SECONDS))
    if problems:
        raise problems[0]
    return answers[0]
