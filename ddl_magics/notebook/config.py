"""`%config Distributed.workers = 4`: the defaults of `%%distributed`, one trait per option of the table.

`%config DistributedStore.keep = "30d"`: what `%ddl clean` does, at the start of every run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError
from traitlets import TraitError, TraitType
from traitlets.config import Configurable

from ddl_magics.commands.table import BY_VERB
from ddl_magics.options.option import Option
from ddl_magics.options.table import OPTIONS
from ddl_magics.options.words import read_value
from ddl_magics.runtime.run_spec import RunSpec
from ddl_magics.store import cleaning
from ddl_magics.store.cleaning import Policy

_log = logging.getLogger(__name__)


def _help(option: Option) -> str:
    """The option's help, with its default while the trait is None."""
    if option.help.endswith("This is the default."):
        return option.help
    default = option.shown_default
    if option.sets and not default:
        value = getattr(RunSpec, option.name)
        default = "" if value is None else str(value)
    return f"{option.help} None: {default or 'not set'}."


class OptionTrait(TraitType[Any, Any]):
    """Takes the values that the option takes on the magic's line, as text or as Python values; None means "not set"."""

    def __init__(self, option: Option) -> None:
        super().__init__(default_value=None, allow_none=True, help=_help(option))
        self.option = option

    def validate(self, obj: Any, value: Any) -> Any:
        if value is None:
            return None
        if self.option.sets:
            if not isinstance(value, bool):
                raise TraitError(f"{self.option.name} must be True or False, not {value!r}.")
            return value
        try:
            if self.option.repeats and isinstance(value, Mapping):
                return dict(read_value(self.option, f"{k}={v}") for k, v in value.items())
            if self.option.repeats:
                return dict([read_value(self.option, str(value))])
            return read_value(self.option, str(value))
        except UsageError as error:
            raise TraitError(str(error)) from None


#: By field: --wait and --no-wait are one trait, `wait`.
_CONFIGURABLE = {option.name: option for option in reversed(OPTIONS) if option.configurable}

Distributed: type[Configurable] = type(
    "Distributed",
    (Configurable,),
    {
        "__doc__": "Defaults of the options of %%distributed.",
        **{name: OptionTrait(option).tag(config=True) for name, option in _CONFIGURABLE.items()},
    },
)


class TextTrait(OptionTrait):
    """Keeps the text: as a number, a time or a size would lose its unit."""

    def validate(self, obj: Any, value: Any) -> Any:
        return None if super().validate(obj, value) is None else str(value)


#: The options of %ddl clean that say what to keep.
_LIMITS = tuple(option for option in BY_VERB["clean"].options if option.configurable)


class DistributedStore(Configurable):
    """Which stored runs are kept; with nothing set, all."""

    keep, keep_last, max_size = (TextTrait(option).tag(config=True) for option in _LIMITS)

    def clean(self) -> None:
        """Remove all other runs, in a background thread."""
        texts = {option.flag: getattr(self, option.name) for option in _LIMITS}
        words = [f"{flag}={text}" for flag, text in texts.items() if text is not None]
        if words:
            limits = BY_VERB["clean"].read(words)
            policy = Policy(limits["keep"], limits["keep_last"], limits["max_size"])
            threading.Thread(target=_clean, args=(policy,), name="ddl_magics clean", daemon=True).start()


def _clean(policy: Policy) -> None:
    for run in cleaning.clean(policy):
        _log.info("removed the stored run %s (%s)", run.record.name, run.record.id)


def configured(config: Configurable) -> dict[str, Any]:
    """The values that are set, by field of `RunSpec`."""
    return {name: getattr(config, name) for name in _CONFIGURABLE if getattr(config, name) is not None}
