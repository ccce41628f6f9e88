"""`%ddl tag` and `note`: the tags and the note that a user adds to a run."""

from __future__ import annotations

from IPython.core.error import UsageError

from ddl_magics.commands.kernel import Kernel
from ddl_magics.options import words
from ddl_magics.options.redaction import as_word
from ddl_magics.runs import Run
from ddl_magics.store.labels import InvalidLabels


def tag(kernel: Kernel, run: str, tags: tuple[str, ...], remove: bool) -> str:
    """Add tags to a run, or remove them; without tags, list those of the run."""
    tagged = kernel.session.find(run)
    try:
        if remove:
            unknown = [label for label in tags if label not in tagged.tags]
            if unknown or not tags:
                raise UsageError(f"{tagged.name} has no tag {as_word(unknown[0]) if unknown else ''}; {_tags(tagged)}")
            tagged.tags = [label for label in tagged.tags if label not in tags]
        elif tags:
            tagged.tags = [*tagged.tags, *tags]
    except (InvalidLabels, OSError) as error:
        raise UsageError(f"{tagged.name} keeps its tags: {error}.") from None
    return _tags(tagged)


def _tags(run: Run) -> str:
    return f"{run.name}: {', '.join(run.tags) or 'no tags'}"


def split_note(line: str) -> list[str]:
    """The words of `%ddl note`: those after the run are text, even if they begin with dashes."""
    tokens = words.split(line)
    return [*tokens[:1], "--", *tokens[1:]]


def note(kernel: Kernel, run: str, text: tuple[str, ...]) -> str:
    """Write the note of a run. text: its words; none to print the note, an empty one to remove it."""
    noted = kernel.session.find(run)
    if text:
        try:
            noted.note = " ".join(text)
        except (InvalidLabels, OSError) as error:
            raise UsageError(f"{noted.name} keeps its note: {error}.") from None
    return f"{noted.name}: {noted.note or 'no note'}"
