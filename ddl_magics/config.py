"""`%config Distributed.workers = 4`: the defaults of `%%distributed`, with a trait for each option of the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from IPython.core.error import UsageError
from traitlets import TraitError, TraitType
from traitlets.config import Configurable

from ddl_magics.options import BUILT, Option
from ddl_magics.parsing import read_value


class OptionTrait(TraitType[Any, Any]):
    """Takes what the option takes on the magic's line, as text or as a Python value; None is "not set"."""

    def __init__(self, option: Option) -> None:
        super().__init__(default_value=None, allow_none=True, help=option.help)
        self.option = option

    def validate(self, obj: Any, value: Any) -> Any:
        if value is None:
            return None
        if self.option.value:
            if not isinstance(value, bool):
                raise TraitError(f"{self.option.flag} wants True or False, not {value!r}.")
            return value
        try:
            if self.option.repeats and isinstance(value, Mapping):
                return dict(read_value(self.option, f"{k}={v}") for k, v in value.items())
            if self.option.repeats:
                return dict([read_value(self.option, str(value))])
            return read_value(self.option, str(value))
        except UsageError as error:
            raise TraitError(str(error)) from None


#: By field, so that --wait and --no-wait are the one trait `wait`.
_CONFIGURABLE = {option.name: option for option in reversed(BUILT) if option.config}

Distributed: type[Configurable] = type(
    "Distributed",
    (Configurable,),
    {
        "__doc__": "Defaults of the options of %%distributed.",
        **{name: OptionTrait(option).tag(config=True) for name, option in _CONFIGURABLE.items()},
    },
)


def configured(config: Configurable) -> dict[str, Any]:
    """The values that were set, by field of `RunSpec`."""
    return {name: getattr(config, name) for name in _CONFIGURABLE if getattr(config, name) is not None}
