"""`labels.json`: the title, tags and note that people add to a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

MAX_TITLE_CHARACTERS = 100
MAX_TAGS, MAX_TAG_CHARACTERS = 20, 40
MAX_NOTE_CHARACTERS = 4000


class InvalidLabels(ValueError):
    """A title, tag or note that a run cannot have; the message says what it must be."""


@dataclass(frozen=True)
class Labels:
    """A title, tags and a note of some lines; each may be empty."""

    title: str = ""
    tags: tuple[str, ...] = ()
    note: str = ""

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Labels:
        """The labels in a `labels.json`, which may be damaged or forged: without invalid ones."""
        title, tags, note = (stored.get(name) for name in ("title", "labels", "note"))
        return cls(
            title=title if _is_line(title, MAX_TITLE_CHARACTERS) else "",
            tags=tuple(tag for tag in tags if _is_line(tag, MAX_TAG_CHARACTERS)) if isinstance(tags, list) else (),
            note=note if _is_text(note) else "",
        )


def tags(values: Any) -> list[str]:
    """The tags as they are stored: stripped, each once, sorted.

    Raises:
        InvalidLabels: `values` are not tags.
    """
    if not isinstance(values, Iterable) or isinstance(values, (str, bytes)):
        raise InvalidLabels("labels must be a list of texts")
    words = list(values)
    if not all(_is_line(tag, MAX_TAG_CHARACTERS) and tag.strip() for tag in words):
        raise InvalidLabels(f"a label must be one line of 1 to {MAX_TAG_CHARACTERS} characters")
    if len(words) > MAX_TAGS:
        raise InvalidLabels(f"labels must be a list of at most {MAX_TAGS}")
    return sorted({tag.strip() for tag in words})


def title(value: Any) -> str:
    """The title, stripped. Raises InvalidLabels if it is not a title."""
    if not _is_line(value, MAX_TITLE_CHARACTERS):
        raise InvalidLabels(
            f"title must be one line of at most {MAX_TITLE_CHARACTERS} characters; an empty one removes the title"
        )
    return str(value).strip()


def note(value: Any) -> str:
    """The note, stripped. Raises InvalidLabels if it is not a note."""
    if not _is_text(value):
        raise InvalidLabels(
            f"note must be a text of at most {MAX_NOTE_CHARACTERS} characters; an empty one removes the note"
        )
    return str(value).strip()


def _is_line(text: Any, limit: int) -> TypeGuard[str]:
    return isinstance(text, str) and len(text) <= limit and all(c == " " or c.isprintable() for c in text)


def _is_text(text: Any) -> TypeGuard[str]:
    return (
        isinstance(text, str)
        and len(text) <= MAX_NOTE_CHARACTERS
        and all(c in " \n\t" or c.isprintable() for c in text)
    )
