"""A folder of the storage that the cluster's Spark knows, through Hadoop: HDFS, Azure, S3, a disk.

The JVM copies files itself, from and to the driver's disk: no byte passes through Python, and nothing is installed for
it. It starts no Spark job. A file has its name only when it is whole, and none is ever written over.
"""

import contextlib
import os
import threading

from . import spark_error

#: A storage that says nothing for so long, before the training begins, is not there.
PROBE_SECONDS = 30.0
SHOWN_FILES = 3


class StorageError(Exception):
    """The folder cannot be used: one line, which names the option that asked for it."""


class Folder:
    """The folder `uri` (without a scheme: on the session's default file system). `run`: the id of the run that writes.

    option: as the user typed it. Every method raises `StorageError`, and waits as long as the storage does.
    """

    def __init__(self, sc, option, uri, run):
        self._sc, self._run, self._asked = sc, run, "%s %s" % (option, uri)
        self._written = uri
        self._fs = self._path = None

    def __enter__(self):
        """Open the file system: an instance of our own, as the session's is shared with the user's cells."""
        jvm = self._sc._jvm
        with self._explained():
            path = jvm.org.apache.hadoop.fs.Path(self._written)
            conf = self._sc._jsc.hadoopConfiguration()
            at = path.toUri() if path.toUri().getScheme() else jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf)
            self._fs = jvm.org.apache.hadoop.fs.FileSystem.newInstance(at, conf)
            self._fs.setWriteChecksum(False)  # on a local disk, a hidden file beside each
            self._path = self._fs.makeQualified(path)
        return self

    def __exit__(self, *_):
        with contextlib.suppress(Exception):  # it is done with, however it ends
            self._fs.close()

    @property
    def uri(self):
        uri = self._path.toString()
        return "file://" + uri[5:] if uri.startswith("file:/") and not uri.startswith("file://") else uri

    def probe(self):
        """Make the folder, and write and delete a file in it. A folder that holds files is refused."""
        with self._explained():
            if self._fs.exists(self._path):
                self._check_empty()
            elif not self._fs.mkdirs(self._path):
                raise StorageError("%s: the folder cannot be made there: name another" % self._asked)
            trial = self._inside(".%s.trial" % self._run)
            stream = self._fs.create(trial, False)
            stream.write(bytearray(b"ddl_magics"))
            stream.close()
            if not self._fs.delete(trial, False):
                raise StorageError("%s: files cannot be deleted there: ask for the right to" % self._asked)

    def _check_empty(self):
        if not self._fs.getFileStatus(self._path).isDirectory():
            raise StorageError("%s: there is a file of that name: name a folder" % self._asked)
        there = self._names()
        if there:
            shown = ", ".join(there[:SHOWN_FILES]) + (", ..." if len(there) > SHOWN_FILES else "")
            raise StorageError(
                "%s: the folder holds files (%s), and none is written over: name another folder, or empty it"
                % (self._asked, shown)
            )

    def names(self):
        """Of what is in the folder, sorted; none where there is no folder."""
        with self._explained("cannot be read"):
            return self._names() if self._fs.exists(self._path) else []

    def _names(self):
        return sorted(status.getPath().getName() for status in self._fs.listStatus(self._path))

    def put(self, file, name):
        """Copy the driver's `file` into the folder as `name`; returns its URI."""
        part, whole = self._inside(".%s.%s.part" % (self._run, name)), self._inside(name)
        with self._explained():
            if self._fs.exists(whole):
                raise StorageError("%s: another run has written %s there meanwhile" % (self._asked, name))
            try:
                self._fs.copyFromLocalFile(False, True, self._on_disk(file), part)
                if not self._fs.rename(part, whole):
                    raise StorageError("%s: %s could not be given its name" % (self._asked, name))
            except Exception:
                with contextlib.suppress(Exception):  # the reason is the one before
                    self._fs.delete(part, False)
                raise
        return "%s/%s" % (self.uri.rstrip("/"), name)

    def get(self, name, file):
        """Copy the file `name` of the folder to the driver's `file`."""
        with self._explained("cannot be read"):
            self._fs.copyToLocalFile(False, self._inside(name), self._on_disk(file), True)

    def delete(self, name):
        with self._explained():
            self._fs.delete(self._inside(name), False)

    def _inside(self, name):
        return self._sc._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _on_disk(self, file):
        return self._sc._jvm.org.apache.hadoop.fs.Path("file://" + os.path.abspath(file))

    @contextlib.contextmanager
    def _explained(self, problem="cannot be written to"):
        try:
            yield
        except StorageError:
            raise
        except Exception as error:  # py4j's, of many kinds
            java = getattr(error, "java_exception", None)
            kind = type(error).__name__ if java is None else java.getClass().getSimpleName()
            why = "%s: %s" % (kind, spark_error.cause(error))
            raise StorageError("%s %s: %s" % (self._asked, problem, why)) from None


def check(sc, option, uri, run):
    """Find out before a training whether files can be written to `uri`. Raises `StorageError` within bounded time."""
    _bounded(sc, option, uri, run, Folder.probe)


def names(sc, option, uri, run):
    """`Folder.names` within bounded time."""
    return _bounded(sc, option, uri, run, Folder.names)


def _bounded(sc, option, uri, run, ask):
    """Hadoop itself tries for many minutes to reach a host that is not there."""
    answers, problems = [], []

    def open_and_ask():
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
