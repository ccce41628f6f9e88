"""`%ddl tag` and `note`: the tags and the note that a user adds to a run."""

from __future__ import annotations

from dataclasses import dataclass

from IPython.core.error import UsageError

from ddl_magics.commands.kernel import Kernel
from ddl_magics.options import words
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run
from ddl_magics.store.labels import InvalidLabels


@dataclass(frozen=True)
class TagRequest:
    """tags: to add, or to remove; none to print those of the run."""

    run: str
    tags: tuple[str, ...]
    remove: bool


def tag(request: TagRequest, kernel: Kernel) -> str:
    run = kernel.session.find(request.run)
    try:
        if request.remove:
            unknown = [label for label in request.tags if label not in run.tags]
            if unknown or not request.tags:
                raise UsageError(f"{run.name} has no tag {as_word(unknown[0]) if unknown else ''}; {_tags(run)}")
            run.tags = [label for label in run.tags if label not in request.tags]
        elif request.tags:
            run.tags = [*run.tags, *request.tags]
    except (InvalidLabels, OSError) as error:
        raise UsageError(f"{run.name} keeps its tags: {error}.") from None
    return _tags(run)


def _tags(run: Run) -> str:
    return f"{run.name}: {', '.join(run.tags) or 'no tags'}"


@dataclass(frozen=True)
class NoteRequest:
    """text: its words; none to print the note of the run, an empty one to remove it."""

    run: str
    text: tuple[str, ...]


def split_note(line: str) -> list[str]:
    """The words of `%ddl note`: those after the run are text, even if they begin with dashes."""
    tokens = words.split(line)
    return [*tokens[:1], "--", *tokens[1:]]


def note(request: NoteRequest, kernel: Kernel) -> str:
    run = kernel.session.find(request.run)
    if request.text:
        try:
            run.note = " ".join(request.text)
        except (InvalidLabels, OSError) as error:
            raise UsageError(f"{run.name} keeps its note: {error}.") from None
    return f"{run.name}: {run.note or 'no note'}"
