"""Cells of other frameworks than Keras on TensorFlow: what they ask for cannot be had, and is refused by name."""

from __future__ import annotations

import ast
import sys
from types import ModuleType
from typing import Any, Iterator, Mapping, Tuple

_NAMES = {"torch": "PyTorch", "jax": "JAX", "flax": "JAX", "pytorch_lightning": "PyTorch", "lightning": "PyTorch"}
_OURS = ("keras", "tensorflow", "tf_keras")


def problem(source: str) -> str | None:
    """Why the cell, or the Keras of this process, is not one of TensorFlow, in one line, or None."""
    module = sys.modules.get("keras")
    backend = module.backend.backend() if module is not None and hasattr(module, "backend") else "tensorflow"
    if backend != "tensorflow":
        return _of_backend("Keras has the backend %s in this session" % backend)
    tree = ast.parse(source)
    for line, name in _backends(tree):
        if name != "tensorflow":
            return _of_backend("line %d: it chooses Keras' backend %s" % (line, name))
    imports = dict(_imports(tree))
    other_framework = next((name for name in imports if name in _NAMES), None)
    if other_framework is None or any(name in imports for name in _OURS) or _OURS[0] in source:
        return None
    return _of_framework(imports[other_framework], other_framework, other_framework)


def problem_of_names(source: str, lines: Mapping[str, int], namespace: Mapping[str, Any]) -> str | None:
    """The same of a cell that uses what an earlier one has imported. lines: name -> line of its first use."""
    if _OURS[0] in source:
        return None
    for name, line in lines.items():
        value = namespace.get(name)
        package = value.__name__.partition(".")[0] if isinstance(value, ModuleType) else ""
        if package in _NAMES:
            return _of_framework(line, name, package)
    return None


def _of_framework(line: int, name: str, package: str) -> str:
    text = "line %d: %s is %s, and %%%%distributed trains models of Keras on TensorFlow: write the model with keras"
    return text % (line, name, _NAMES[package])


def _of_backend(subject: str) -> str:
    return "%s, and workers have TensorFlow: leave it out, or set KERAS_BACKEND=tensorflow and restart" % subject


def _imports(tree: ast.Module) -> Iterator[Tuple[str, int]]:
    """(name of the package, line) of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name.partition(".")[0], node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0], node.lineno


def _backends(tree: ast.Module) -> Iterator[Tuple[int, str]]:
    """(line, name) of each backend that the cell chooses: in the environment, or by `set_backend`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any("KERAS_BACKEND" in ast.dump(target) for target in node.targets):
            value = node.value
        elif isinstance(node, ast.Call) and "set_backend" in ast.dump(node.func) and node.args:
            value = node.args[0]
        elif isinstance(node, ast.Call) and len(node.args) == 2 and "KERAS_BACKEND" in ast.dump(node.args[0]):
            value = node.args[1]  # os.environ.setdefault, os.putenv
        else:
            continue
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            yield node.lineno, value.value
