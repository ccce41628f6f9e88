"""Labels of the session that are text: no loss of Keras takes them, and its words for it are hard to understand."""

from __future__ import annotations

import ast
from typing import Any, Mapping

#: Arguments of Keras' `fit`, by which it is known from others, such as that of an encoder.
_OF_KERAS = frozenset(("epochs", "batch_size", "verbose", "callbacks", "validation_data", "validation_split"))
#: Methods of a model that trains in its own way, with labels of any kind.
_OWN_TRAINING = ("train_step", "compute_loss")
#: Elements that are looked at where the type does not tell.
_LOOKED_AT = 100

HOW = "encode them with classes, y = np.unique(%s, return_inverse=True), or with keras.layers.StringLookup"


def problem(source: str, captured: Mapping[str, Any]) -> str | None:
    """Why `fit` of a Keras model in the cell would fail on the labels, in one line, or None.

    captured: the variables of the session that the cell uses.
    """
    tree = ast.parse(source)
    if any(isinstance(node, ast.FunctionDef) and node.name in _OWN_TRAINING for node in ast.walk(tree)):
        return None
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    compiled = {_owner(call) for call in calls if _method(call) == "compile"}
    values = {name: value for name, value in captured.items() if name not in stored}
    for call in calls:
        of_keras = _OF_KERAS & _keywords(call).keys() or _owner(call) in compiled
        if _method(call) != "fit" or not of_keras:
            continue
        label = _keywords(call).get("y", call.args[1] if len(call.args) > 1 else None)
        if label is not None and _is_text(_value(label, values)):
            text = "line %d: the labels %s are text, and a loss wants numbers: %s"
            shown = _segment(source, label)
            return text % (label.lineno, shown, HOW % shown)
    return None


def _method(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _owner(call: ast.Call) -> str:
    return ast.dump(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _keywords(call: ast.Call) -> dict[str | None, ast.expr]:
    return {keyword.arg: keyword.value for keyword in call.keywords}


def _segment(source: str, node: ast.expr) -> str:
    return ast.get_source_segment(source, node) or "y"


def _value(node: ast.AST, values: Mapping[str, Any]) -> Any:
    """The value of a variable, of a column or a slice of it, and of its `values`; None for another expression."""
    if isinstance(node, ast.Name):
        return values.get(node.id)
    if isinstance(node, ast.Call) and _method(node) == "to_numpy":
        return _value(node.func.value, values)  # type: ignore[attr-defined]
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, values)
        return owner if node.attr == "values" else _column(owner, node.attr)
    if isinstance(node, ast.Subscript):
        owner, index = _value(node.value, values), getattr(node.slice, "value", None)
        index = getattr(index, "value", index)  # before Python 3.9 the slice is an ast.Index
        return _column(owner, index) if isinstance(index, str) else owner
    return None


def _column(frame: Any, name: str) -> Any:
    return frame[name] if hasattr(frame, "columns") and name in list(frame.columns) else None


def _is_text(value: Any) -> bool:
    if getattr(getattr(value, "dtype", None), "kind", None) in ("U", "S"):
        return True
    if hasattr(value, "iloc"):
        head = list(value.iloc[:_LOOKED_AT].to_numpy().ravel())
    elif type(value).__name__ == "ndarray" and value.dtype.kind == "O":
        head = list(value[:_LOOKED_AT].ravel())
    elif isinstance(value, (list, tuple)):
        head = list(value[:_LOOKED_AT])
    else:
        return False
    return bool(head) and all(isinstance(element, str) for element in head)
