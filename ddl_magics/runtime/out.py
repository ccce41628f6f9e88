"""--out URI: the run's files are written by the cluster, through the Hadoop file systems that its Spark knows.

The JVM copies them itself, from the driver's disk: no byte passes through Python, and nothing is installed for it. It
starts no Spark job. A file has its name only when it is whole, and none is ever written over.
"""

import json
import os
import threading

from . import spark_error
from .histories import histories

#: A storage that says nothing for so long, before the training begins, is not there.
PROBE_SECONDS = 30.0
SHOWN_FILES = 3
HISTORY = "history.json"


class OutError(Exception):
    """The folder cannot be written to: one line that ends in what to do."""


class Folder:
    """The folder `uri` (without a scheme: on the session's default file system). `run`: the id of the run that writes.

    Every method raises `OutError`, and waits as long as the storage does.
    """

    def __init__(self, sc, uri, run):
        self._sc, self._run, self._asked = sc, run, uri
        self._fs = self._path = None

    def __enter__(self):
        """Open the file system: an instance of our own, as the session's is shared with the user's cells."""
        jvm = self._sc._jvm
        try:
            path = jvm.org.apache.hadoop.fs.Path(self._asked)
            conf = self._sc._jsc.hadoopConfiguration()
            at = path.toUri() if path.toUri().getScheme() else jvm.org.apache.hadoop.fs.FileSystem.getDefaultUri(conf)
            self._fs = jvm.org.apache.hadoop.fs.FileSystem.newInstance(at, conf)
            self._fs.setWriteChecksum(False)  # on a local disk, a hidden file beside each
            self._path = self._fs.makeQualified(path)
        except Exception as error:  # py4j's, of many kinds
            raise self._problem(error) from None
        return self

    def __exit__(self, *_):
        try:
            self._fs.close()
        except Exception:  # it is done with, however it ends
            pass

    @property
    def uri(self):
        uri = self._path.toString()
        return "file://" + uri[5:] if uri.startswith("file:/") and not uri.startswith("file://") else uri

    def probe(self):
        """Make the folder, and write and delete a file in it. A folder that holds files is refused."""
        try:
            if self._fs.exists(self._path):
                self._check_empty()
            elif not self._fs.mkdirs(self._path):
                raise OutError("--out %s: the folder cannot be made there: name another" % self._asked)
            trial = self._inside(".%s.trial" % self._run)
            stream = self._fs.create(trial, False)
            stream.write(bytearray(b"ddl_magics"))
            stream.close()
            if not self._fs.delete(trial, False):
                raise OutError("--out %s: files cannot be deleted there: ask for the right to" % self._asked)
        except OutError:
            raise
        except Exception as error:  # py4j's, of many kinds
            raise self._problem(error) from None

    def _check_empty(self):
        if not self._fs.getFileStatus(self._path).isDirectory():
            raise OutError("--out %s: there is a file of that name: name a folder" % self._asked)
        there = sorted(status.getPath().getName() for status in self._fs.listStatus(self._path))
        if there:
            shown = ", ".join(there[:SHOWN_FILES]) + (", ..." if len(there) > SHOWN_FILES else "")
            raise OutError(
                "--out %s: the folder holds files (%s), and none is written over: name another folder, or empty it"
                % (self._asked, shown)
            )

    def put(self, file, name):
        """Copy the driver's `file` into the folder as `name`; returns its URI."""
        try:
            part, whole = self._inside(".%s.%s.part" % (self._run, name)), self._inside(name)
            if self._fs.exists(whole):
                raise OutError("--out %s: another run has written %s there meanwhile" % (self._asked, name))
            local = self._sc._jvm.org.apache.hadoop.fs.Path("file://" + os.path.abspath(file))
            self._fs.copyFromLocalFile(False, True, local, part)
            if not self._fs.rename(part, whole):
                self._fs.delete(part, False)
                raise OutError("--out %s: %s could not be given its name" % (self._asked, name))
        except OutError:
            raise
        except Exception as error:  # py4j's, of many kinds
            raise self._problem(error) from None
        return "%s/%s" % (self.uri.rstrip("/"), name)

    def _inside(self, name):
        return self._sc._jvm.org.apache.hadoop.fs.Path(self._path, name)

    def _problem(self, error):
        java = getattr(error, "java_exception", None)
        kind = type(error).__name__ if java is None else java.getClass().getSimpleName()
        return OutError("--out %s cannot be written to: %s: %s" % (self._asked, kind, spark_error.cause(error)))


def check(sc, uri, run):
    """Find out before a training whether its files can be written to `uri`. Raises `OutError` within bounded time."""
    problems = []

    def probe():
        try:
            with Folder(sc, uri, run) as folder:
                folder.probe()
        except OutError as error:
            problems.append(error)

    # Hadoop tries for many minutes to reach a host that is not there.
    thread = threading.Thread(target=probe, daemon=True)
    thread.start()
    thread.join(PROBE_SECONDS)
    if thread.is_alive():
        problems.append(OutError("--out %s: no answer within %g s: is the address right?" % (uri, PROBE_SECONDS)))
    if problems:
        raise problems[0]


def write(sc, spec, files, events, scratch):
    """Write a run's files and its history to its folder.

    files: name -> path on the driver's disk; events: the run's; scratch: a folder of the driver's. Returns
    ({name: URI}, None or why not all of them are there).
    """
    written = {}
    if not files:  # a run that failed leaves the folder to the next
        return written, None
    try:
        with Folder(sc, spec["out"], spec["run"]) as folder:
            for name, path in sorted(files.items()):
                written[name] = folder.put(path, name)
            history = os.path.join(scratch, HISTORY)
            with open(history, "w") as file:
                json.dump({"run": spec["run"], "name": spec["name"], "histories": histories(events)}, file)
            written[HISTORY] = folder.put(history, HISTORY)
    except (OutError, OSError) as error:
        return written, str(error)
    return written, None
