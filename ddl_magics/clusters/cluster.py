"""`Cluster` executes runs: it calls the functions of the runtime's `driver.api`, wherever the driver runs."""

from __future__ import annotations

import base64
import errno
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from ddl_magics.clusters import sent_files
from ddl_magics.clusters.base import (
    UNREADABLE,
    BroughtBack,
    Launched,
    LockedOut,
    Namespace,
    NotStarted,
    Polled,
    Postponed,
    Progress,
    Ready,
    Refused,
    ScoringRequest,
    Unreachable,
)
from ddl_magics.errors import CannotScore, CannotWrite
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import trained_models
from ddl_magics.store.files import move
from ddl_magics.wording import counted

#: Bytes of an artifact in one `fetch`.
FETCH_BYTES = 4 * 2**20

#: Why --release is refused for the user's own session.
NOT_OURS = (
    "--release is for sessions that ddl_magics has started, and this one is yours: leave it out; %ddl release gives "
    "the session's executors back."
)


class Cluster:
    """Executes runs. Methods may be called from any thread; each returns within bounded time.

    Subclasses define `_call`, `status`, `findings`, `check` and `launch`; the other methods are requests to the driver.
    """

    #: For people: "this machine", "hdi-prod, session 12".
    name = ""
    #: Shortest time between two polls.
    poll_seconds = 1.0
    #: Whether a run continues when this kernel ends.
    outlives_kernel = False
    #: Whether Spark runs in this kernel's process, and so with this notebook's variables and this machine's folders.
    in_kernel = False
    #: Bytes of the cell's files that are fetched when the run ends; None for all.
    files_bytes: int | None = None

    @property
    def driver_address(self) -> Mapping[str, Any]:
        """The address by which another kernel finds a run's driver, as JSON without secrets; empty if it cannot."""
        return {}

    def status(self) -> Ready | NotStarted | Unreachable:
        raise NotImplementedError

    def grows(self, spec: RunSpec) -> bool:
        """Whether a launch makes room for a run that needs more slots than there are, once no other run is there."""
        return False

    def findings(self) -> Iterable[tuple[str, str]]:
        """(subject, finding) of each line that `%ddl check` prints. Starts nothing."""
        raise NotImplementedError

    def check(self, spec: RunSpec, namespace: Namespace) -> Refused | None:
        """Why the run would be refused, as far as can be checked without waiting."""
        raise NotImplementedError

    def launch(self, spec: RunSpec, namespace: Namespace) -> Launched | Postponed | Refused:
        """Start the run and return. Where Spark runs here, `namespace` has the variables that the cell uses."""
        raise NotImplementedError

    def _call(self, function: str, request: Mapping[str, Any], namespace: Namespace | None = None) -> dict[str, Any]:
        """Call a function of `driver.api`, and return its reply.

        Args:
            function: its name.
            request: its request, sent as JSON.
            namespace: for functions that use variables: the notebook's, which they read if `in_kernel`, and else the
                Spark session's.

        Raises:
            ConnectionError, TimeoutError: there is no answer.
            ProcessLookupError: the driver is gone.
        """
        raise NotImplementedError

    def spark(self, spec: RunSpec) -> Any:
        """This notebook's SparkSession, created for the spec's workers if there is none; None if not `in_kernel`.

        Raises:
            CannotStart: Spark does not start.
        """
        return None

    def runs(self) -> Sequence[Mapping[str, Any]]:
        """The driver's runs that this kernel may not know, oldest first: {"run", "state", "spec"}.

        Raises:
            ConnectionError, TimeoutError, ProcessLookupError: there is no answer.
        """
        return ()

    def notices(self, spec: RunSpec, namespace: Namespace) -> Iterable[str]:
        """What the user should know of a run that `check` accepts, a line each."""
        return ()

    def poll(self, run: str, after: int) -> Polled | Unreachable:
        try:
            reply = self._call("poll", {"run": run, "after": after})
        except ProcessLookupError as error:
            return Unreachable(str(error), session_ended=True)
        except (ConnectionError, TimeoutError) as error:
            return Unreachable(str(error), locked_out=isinstance(error, LockedOut))
        if "events" not in reply:
            return Unreachable(_message(reply), session_ended=True)
        return Polled(
            tuple(_sound(reply["events"], after)), int(reply["last"]), bool(reply["more"]), str(reply["state"])
        )

    def stop(self, run: str, reason: str = "") -> bool:
        """Ask the run to finish its step and end, and to keep its model. It ends later, with a state event.

        reason: words that follow "stopped" in that event. Returns whether the driver answered; if not, call again.
        """
        return self._ask("stop", {"run": run, "reason": reason})

    def release(self, run: str) -> None:
        """Allow the driver to forget the run: the notebook has received all of it."""
        self._ask("release", {"run": run})

    def fetch(self, run: str, artifact: str, to: Path, progress: Progress) -> str | None:
        """Write the artifact to the file `to`. Returns None, or in one line why it cannot be fetched.

        Raises:
            OSError: it cannot be fetched now, as the driver does not answer or a disk is full.
        """
        partial_file = to.with_name(f".{to.name}.part")
        digest, offset = hashlib.sha256(), 0
        try:
            with open(partial_file, "wb") as file:
                while True:
                    request = {"run": run, "name": artifact, "offset": offset, "length": FETCH_BYTES}
                    reply = self._call("fetch", request)
                    if "data" not in reply:
                        return _message(reply)
                    data = base64.b64decode(reply["data"])
                    file.write(data)
                    digest.update(data)
                    offset += len(data)
                    progress(offset, int(reply["size"]))
                    if offset >= reply["size"]:
                        break
                    if not data:
                        return f"the data ended after {offset} of {reply['size']} bytes"
            if digest.hexdigest() != reply["sha256"]:
                return "its checksum is wrong"
            move(partial_file, to)
            return None
        except (OSError, ValueError) as error:
            if _may_pass(error):
                raise
            return f"{type(error).__name__}: {error}"
        finally:
            partial_file.unlink(missing_ok=True)

    def place(
        self, run: str, folder: Path | None, mentioned: Collection[str] | None, namespace: MutableMapping[str, Any]
    ) -> BroughtBack:
        """Set variables to what a run has brought, where its cell took its variables from.

        Args:
            run: its id.
            folder: with its artifacts, on this machine; None for those that the driver has.
            mentioned: names of which models are loaded, also where that takes the import of Keras; None for all.
            namespace: the notebook's variables, used if `in_kernel`.

        Raises:
            ConnectionError, TimeoutError, ProcessLookupError: there is no answer.
        """
        names = None if mentioned is None else list(mentioned)
        request = {"run": run, "folder": None if folder is None else str(folder), "mentioned": names}
        reply = self._call("place", request, namespace)
        if not reply.get("ok"):
            return BroughtBack()
        return BroughtBack(tuple(reply["placed"]), tuple(reply["kept"]), dict(reply["absent"]), tuple(reply["waiting"]))

    def predict(
        self, request: ScoringRequest, name: str, output: str, on_error: str, namespace: MutableMapping[str, Any]
    ) -> Sequence[tuple[str, str]]:
        """Define a DataFrame `name` with predictions, beside the request's DataFrame. Returns (name, type) of columns.

        Args:
            request: the model and the DataFrame.
            name: of the new DataFrame.
            output: of the column that it gets.
            on_error: "fail" or "null", as `ddl_magics.predict` takes it.
            namespace: the notebook's variables, used if `in_kernel`.

        Raises:
            CannotScore: a ValueError of one line; a name is wrong, the first row cannot be scored, or the driver does
                not answer.
        """
        columns = {"name": name, "output": output, "on_error": on_error}
        reply = self._score("predict", request, columns, namespace)
        return [(column, kind) for column, kind in reply["columns"]]

    def evaluate(
        self, request: ScoringRequest, label: str, weight: str | None, namespace: Namespace
    ) -> Mapping[str, Any]:
        """The model's metrics over the rows, as `runtime.scoring.records.Evaluated`. An interrupt ends the evaluation.

        Args:
            request: the model and the DataFrame.
            label, weight: columns, as --label and --weight take them.
            namespace: the notebook's variables, used if `in_kernel`.

        Raises:
            CannotScore: a ValueError of one line; a name is wrong, a row cannot be evaluated, or the driver does not
                answer.
        """
        reply = self._score("evaluate", request, {"label": label, "weight": weight}, namespace)
        evaluated: Mapping[str, Any] = reply["evaluated"]
        return evaluated

    def _score(
        self, function: str, request: ScoringRequest, columns: Mapping[str, Any], namespace: Namespace
    ) -> dict[str, Any]:
        message = {
            "run": request.key,
            "artifact": request.model.name,
            "file": str(request.model) if self.in_kernel else None,
            "sent": False,
            "trust": trained_models.trust(request.model),
            "data": request.data,
            "features": request.features,
            "batch_rows": request.batch_rows,
            "transform": request.transform,
            **columns,
        }
        try:
            reply = self._call(function, message, namespace)
            if reply.get("unknown"):
                sent_files.send(request.key, request.model.read_bytes(), self._call)
                reply = self._call(function, {**message, "sent": True}, namespace)
        except sent_files.CannotSendFiles as error:
            raise CannotScore(f"the model cannot be sent to {self.name}: {error}") from None
        except (ConnectionError, TimeoutError, ProcessLookupError) as error:
            raise CannotScore(f"{self.name} does not {function}: {error}") from None
        if not reply.get("ok"):
            raise CannotScore(_message(reply, f"{self.name} gave no reason"))
        return reply

    def write_tfrecord(self, data: str, uri: str, compression: str | None, namespace: Namespace) -> Mapping[str, Any]:
        """Write the DataFrame named `data` as TFRecord files. An interrupt ends the writing.

        Args:
            data: the DataFrame's name, in the process of the cluster's Spark session.
            uri: the folder, which must not exist.
            compression: None or "gzip".
            namespace: the notebook's variables, used if `in_kernel`.

        Returns:
            "rows", "files" and "bytes" that were written.

        Raises:
            CannotWrite: a ValueError of one line; a name is wrong, the storage refuses, or the driver does not answer.
        """
        try:
            reply = self._call("write_tfrecord", {"data": data, "uri": uri, "compression": compression}, namespace)
        except (ConnectionError, TimeoutError, ProcessLookupError) as error:
            raise CannotWrite(f"{self.name} does not write {data}: {error}") from None
        if not reply.get("ok"):
            raise CannotWrite(_message(reply, f"{self.name} gave no reason"))
        return reply

    def give_back(self, resource: str) -> str | Refused:
        """Release "executors" or the "session", as --release says. Returns a line for the user."""
        if resource == "session":
            return self._end_session() if self._is_ours() else Refused("usage", NOT_OURS)
        return self._change_executors(
            "release",
            "{} given back; a Spark job waits until a run or %ddl acquire asks for new ones",
            "there are no executors to give back",
        )

    def ask_again(self) -> str | Refused:
        """Request the released executors again. Returns a line for the user."""
        return self._change_executors("acquire", "asked for {}", "no executors were given back with %ddl release")

    def replace_executor(self, executor: str) -> str | Refused:
        """Replace an executor of a session that we started. Returns a line for the user."""
        if not self._is_ours():
            return Refused("usage", "the session is yours")
        return self._change_executors(
            "replace", "it was replaced by another", "Spark has lost it already", executor=executor
        )

    def _is_ours(self) -> bool:
        """Whether the session was started here."""
        return False

    def _end_session(self) -> str | Refused:
        """End the session, which was started here. The next run starts a new one."""
        raise NotImplementedError

    def _change_executors(self, action: str, changed: str, unchanged: str, **arguments: str) -> str | Refused:
        """Release or request executors. changed: the line for the user, with {} for their number."""
        try:
            reply = self._call("executors", {"do": action, **arguments})
        except (ConnectionError, ProcessLookupError, TimeoutError) as error:
            return Refused("spark", f"{self.name} does not answer: {error}")
        if "count" not in reply:
            return Refused("spark", _message(reply))
        count = int(reply["count"])
        return changed.format(counted(count, "executor")) if count else unchanged

    def cache(self, option: str, clear: bool) -> list[Mapping[str, Any]] | str:
        """The data that the hosts cache for --data, as `driver.api.cache` lists it, or a line with the problem.

        Args:
            option: the value of --cache.
            clear: remove the cached data after listing it.
        """
        try:
            reply = self._call("cache", {"cache": option, "clear": clear})
        except (ConnectionError, ProcessLookupError, TimeoutError) as error:
            return str(error)
        return list(reply["entries"]) if "entries" in reply else _message(reply)

    def shutdown(self) -> None:
        """End what was started for this notebook. Called when the kernel exits."""

    def _ask(self, function: str, request: Mapping[str, Any]) -> bool:
        """Whether the driver answers."""
        try:
            self._call(function, request)
        except (ConnectionError, ProcessLookupError, TimeoutError):
            return False
        return True


def _may_pass(error: Exception) -> bool:
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def _sound(events: Iterable[Any], after: int) -> Iterator[ev.RawEvent]:
    """The events in a reply; `UNREADABLE` replaces those of another version that cannot be read."""
    for number, event in enumerate(events, after + 1):
        if ev.is_sound(event) and "seq" in event:
            yield event
        else:
            seq = event.get("seq") if isinstance(event, dict) else None
            placeholder = ev.make(UNREADABLE, ev.JOB)
            yield {**placeholder, "attempt": 1, "seq": seq if isinstance(seq, int) and seq >= number else number}


def launch_answer(reply: Mapping[str, Any]) -> Launched | Refused:
    """A reply of `driver.api.launch` as an answer."""
    if reply.get("ok"):
        return Launched()
    error = reply.get("error") or {}
    return Refused(str(error.get("kind", "spark")), str(error.get("message", "the driver refused without a reason")))


def _message(reply: Mapping[str, Any], default: str = "the driver does not know the run") -> str:
    error = reply.get("error") or default
    return str(error.get("message", error) if isinstance(error, Mapping) else error)
