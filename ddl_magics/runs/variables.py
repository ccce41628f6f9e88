"""What a run has brought back of its cell's variables, in words; and its file, read here."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ddl_magics.clusters.base import BroughtBack
from ddl_magics.errors import NotInRun
from ddl_magics.runtime import events as ev
from ddl_magics.runtime.files.names import listed
from ddl_magics.runtime.variables.decoding import Attributes, Damaged, Decoder, Missing, loaded_array
from ddl_magics.runtime.variables.index import UNREADABLE, checked
from ddl_magics.runtime.variables.left import FILE
from ddl_magics.wording import first_line, nearest, plain


def has_variables(events: Iterable[ev.RawEvent]) -> bool:
    """Whether the run has brought variables back, or says why not."""
    return any(artifact.name == FILE for artifact in ev.select(ev.Artifact, events))


def told(run: str, brought: BroughtBack, waited: bool) -> Iterator[str]:
    """The lines for the user. waited: what came is not told, as plain cells do not."""
    if brought.placed and not waited:
        yield f"in the notebook now: {listed(brought.placed)}"
    if brought.kept:
        yield (
            f"not replaced, as a later cell has changed it: {listed(brought.kept)}; {run}.variables has what the run "
            "has made of it"
        )
    if brought.absent:
        names_of: dict[str, list[str]] = {}
        for name, why in brought.absent.items():
            names_of.setdefault(why, []).append(name)
        yield f"not in the notebook: {listed([f'{listed(names)} ({why})' for why, names in names_of.items()])}"


class Variables(Mapping[str, Any]):
    """The values of a run's variables by name, each read from the run's file when it is asked for.

    Raises, beside KeyError for a name that the run has not: ValueError where a value cannot be had here.
    """

    def __init__(self, run: str, path: Path, model: Any) -> None:
        """model: calls for the run's K-th model."""
        self._run, self._path, self._model = run, path, model
        try:
            with zipfile.ZipFile(path) as archive:
                index = checked(archive)
        except (Damaged, zipfile.BadZipFile, OSError) as error:
            raise NotInRun(f"the variables of {run} cannot be read: {plain(first_line(error))}") from None
        self._objects: list[Any] = index["objects"]
        self._changed: dict[str, Any] = index["changed"]
        self._trained: dict[str, Any] = index["trained"]
        self._values: dict[str, Any] = index["values"]
        self._absent: dict[str, str] = index["absent"]

    def __getitem__(self, name: str) -> Any:
        decoder = Decoder(self._objects, self._array, self.__getitem__, self._model)
        try:
            if name in self._trained:
                return self._model(self._trained[name]["model"])
            if name in self._changed:
                if not {"keras", "random"}.isdisjoint(self._changed[name]):
                    raise Missing("its state is set in the notebook's own object alone")
                content = decoder.content(self._changed[name])
                return content.values if isinstance(content, Attributes) else content
            if name in self._values:
                return decoder.decode(self._values[name])
        except (Damaged, Missing) as error:
            raise ValueError(f"{name} of {self._run} cannot be read: {error}") from None
        if name in self._absent:
            raise ValueError(f"{name} of {self._run} has not come: {self._absent[name]}")
        raise KeyError(f"{self._run} has brought no {name}.{nearest(name, self)}")

    def __iter__(self) -> Iterator[str]:
        return iter({**self._changed, **self._trained, **self._values})

    def __len__(self) -> int:
        return len({**self._changed, **self._trained, **self._values})

    def __repr__(self) -> str:
        return f"<variables of {self._run}: {', '.join(self)}>"

    def _array(self, number: int) -> Any:
        try:
            with zipfile.ZipFile(self._path) as archive:
                return loaded_array(archive.read(f"{number}.npy"))
        except UNREADABLE as error:
            raise Damaged(first_line(error)) from None
