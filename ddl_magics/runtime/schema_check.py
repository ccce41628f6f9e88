"""Checks of JSON values by a JSON Schema, compiled for speed: an event's fields are checked at every reader.

Only what the schemas of events use: types, lists of types, minimum, items, properties, required, additionalProperties.
Values of an enumeration may be those of another version: any text passes.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, NamedTuple

Schema = Dict[str, Any]  # a JSON Schema

#: A number beyond these bounds is damaged: one that counts something, and any whole number.
MAX_COUNT, MAX_INTEGER = 2**53, 10**300

_TYPES: dict[str, type] = {
    "string": str,
    "integer": int,
    "number": float,
    "boolean": bool,
    "object": dict,
    "array": list,
    "null": type(None),
}


class _Check(NamedTuple):
    """What a schema says of a value. types: empty for any. least: None where NaN and infinities are numbers, too."""

    types: frozenset[type]
    least: float | None
    fits_inside: Callable[[Any], bool] | None


def _check(schema: Schema) -> _Check:
    if "enum" in schema:
        return _Check(frozenset([str, *map(type, schema["enum"])]), None, None)
    type_names = schema.get("type", ())
    types = {_TYPES[name] for name in ([type_names] if isinstance(type_names, str) else type_names)}
    fits_inside = object_check(schema) if dict in types else _list_check(schema) if list in types else None
    if int in types:
        return _Check(frozenset(types), schema.get("minimum", -MAX_COUNT), fits_inside)
    return _Check(frozenset(types | {int} if float in types else types), schema.get("minimum"), fits_inside)


def _fits(value: Any, check: _Check) -> bool:
    kind = type(value)
    if kind not in check.types:
        return not check.types
    if kind is int or kind is float:
        if check.least is not None:
            return bool(check.least <= value <= MAX_COUNT)
        return kind is float or -MAX_INTEGER < value < MAX_INTEGER
    return check.fits_inside is None or value is None or check.fits_inside(value)


def _list_check(schema: Schema) -> Callable[[Any], bool]:
    item = _check(schema["items"])
    return lambda values: all(_fits(value, item) for value in values)


def object_check(schema: Schema) -> Callable[[Any], bool]:
    """What checks the properties of an object, which must be a dict."""
    required = schema.get("required", ())
    properties = [
        (name, name in required, _check(property_schema))
        for name, property_schema in schema.get("properties", {}).items()
    ]
    additional = _check(schema["additionalProperties"]) if "additionalProperties" in schema else None

    def fits(value: dict[str, Any]) -> bool:
        if additional is not None:
            return all(_fits(entry, additional) for entry in value.values())
        for name, is_required, check in properties:
            if name in value:
                if not _fits(value[name], check):
                    return False
            elif is_required:
                return False
        return True

    return fits
