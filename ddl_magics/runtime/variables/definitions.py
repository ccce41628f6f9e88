"""The functions, classes and imports of a cell's top level: the notebook executes them itself, from the cell's source.

Nothing of them travels but their names. What only the run itself can tell is left out, with the reason: a definition in
a block such as `if`, one whose name is assigned as well, one that reads a variable which the cell assigns again later.
"""

from __future__ import annotations
import __future__

import ast
import linecache
import sys
from typing import Any, Collection, Iterator, Sequence

#: Their import takes seconds: it waits for a cell that mentions what the cell has defined.
_FRAMEWORKS = frozenset(("keras", "tensorflow", "tf_keras"))
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef, *_IMPORTS)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_SCOPES = (*_FUNCTIONS, ast.ClassDef, ast.Lambda, *_COMPREHENSIONS)


class Definition:
    """One statement that binds one name."""

    def __init__(self, name: str, statement: ast.stmt, file: str, flags: int) -> None:
        """file: where tracebacks and TensorFlow find its source. flags: of the cell's `from __future__ import`."""
        self.name, self.reads = name, frozenset(_read_at_once(statement))
        self.is_import = isinstance(statement, _IMPORTS)
        self._file, self._flags, self._module = file, flags, ast.Module([statement], [])
        self._framework = next((root for root in _roots(statement) if root in _FRAMEWORKS), None)

    def loads_framework(self) -> bool:
        return self._framework is not None and self._framework not in sys.modules

    def execute(self, namespace: dict[str, Any]) -> Any:
        """The function, class or module, whose globals are the namespace; it is not set there. Raises any error."""
        code = compile(self._module, self._file, "exec", self._flags, dont_inherit=True)
        local: dict[str, Any] = {}
        exec(code, namespace, local)
        return local[self.name]


class CellDefinitions:
    """Of one cell.

    names: that it defines anywhere outside of functions. left_out: name -> why it is not defined in the notebook.
    attributes: of its functions and classes, that it sets. repeated: names of several definitions.
    """

    def __init__(self, source: str, file: str = "<cell>") -> None:
        """Raises SyntaxError."""
        self._source, self._file = source, file
        body = ast.parse(source).body
        flags = _future_flags(body)
        statements = [single for node in body if isinstance(node, _DEFINITIONS) for single in _singly(node)]
        self._waiting = [Definition(name, statement, file, flags) for name, statement in statements]
        self.left_out = dict(_left_out(body))
        self.names = frozenset(name for name, _ in statements) | self.left_out.keys()
        of_statements = [name for name, _ in statements]
        self.repeated = frozenset(name for name in of_statements if of_statements.count(name) > 1)
        defined = {name for name, statement in statements if not isinstance(statement, _IMPORTS)}
        self.attributes = frozenset(
            (node.value.id, node.attr)
            for statement in body
            for node in ast.walk(statement)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if not isinstance(node.ctx, ast.Load) and node.value.id in defined
        )

    def retain(self, names: Collection[str]) -> None:
        """The run has left these names."""
        self._waiting = [entry for entry in self._waiting if entry.name in names and entry.name not in self.left_out]
        if self._waiting:
            lines = self._source.splitlines(True)
            linecache.cache[self._file] = (len(self._source), None, lines, self._file)

    def take_executable(self, mentioned: Collection[str] | None) -> Sequence[Definition]:
        """Those to execute now, in the cell's order. The others wait until a cell mentions a name of this one.

        mentioned: by the cell that is executed next; None for all.
        """
        is_mentioned = mentioned is None or not self.names.isdisjoint(mentioned)
        executable: list[Definition] = []
        waiting: list[Definition] = []
        for definition in self._waiting:
            waits = definition.loads_framework() or not definition.reads.isdisjoint(entry.name for entry in waiting)
            (waiting if waits and not is_mentioned else executable).append(definition)
        self._waiting = waiting
        return executable

    @property
    def waiting(self) -> list[str]:
        return list(dict.fromkeys(definition.name for definition in self._waiting))


def _left_out(body: Sequence[ast.stmt]) -> Iterator[tuple[str, str]]:
    """(name, reason), the strongest reason last."""
    in_functions = {
        name for node in body for scope in ast.walk(node) if isinstance(scope, ast.Global) for name in scope.names
    }
    for index, statement in enumerate(body):
        if isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*":
            yield "* of %s" % statement.module, "import its names one by one"
        elif isinstance(statement, _DEFINITIONS):
            reassigned = {
                name for following in body[index + 1 :] for name, node in _bindings(following) if not _is_code(node)
            }
            read = sorted(reassigned.intersection(_read_at_once(statement)))
            if read:
                text = "its definition reads %s, which the cell assigns again later" % read[0]
                yield from ((name, text) for name, _ in _singly(statement))
        elif not isinstance(statement, _SCOPES):
            for name, node in _bindings(statement):
                if _is_code(node):
                    yield name, "defined in a block such as if, for or try"
    defined = {name for node in body for name, code in _bindings(node) if _is_code(code)}
    assigned = {name for node in body for name, target in _bindings(node) if not _is_code(target)}
    for name in sorted(defined & (assigned | in_functions)):
        yield name, "the cell assigns or deletes it, beside its definition"


def _is_code(node: ast.AST) -> bool:
    return isinstance(node, _DEFINITIONS)


def _bindings(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """(name, node) of all that binds a name in the scope of the node, itself included."""
    if isinstance(node, _DEFINITIONS):
        yield from _singly(node)
        return
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id, node
    elif isinstance(getattr(node, "name", None), str):  # of an except or a case
        yield str(getattr(node, "name", None)), node
    if not isinstance(node, _SCOPES):
        for child in ast.iter_child_nodes(node):
            yield from _bindings(child)


def _singly(node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """(name, statement) of a definition, with a statement for each name that is imported."""
    if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
        yield node.name, node
    elif isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.split(".")[0], ast.copy_location(ast.Import([alias]), node)
    elif isinstance(node, ast.ImportFrom) and node.module != "__future__":
        for alias in node.names:
            if alias.name != "*":
                statement = ast.copy_location(ast.ImportFrom(node.module, [alias], node.level), node)
                yield alias.asname or alias.name, statement


def _read_at_once(node: ast.AST) -> Iterator[str]:
    """The names that are read as the node is executed, such as decorators, defaults, bases and a class's body."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    body = node.body if isinstance(node, (*_FUNCTIONS, ast.Lambda)) else []
    deferred = body if isinstance(body, list) else [body]
    for child in ast.iter_child_nodes(node):
        if child not in deferred:
            yield from _read_at_once(child)


def _roots(statement: ast.stmt) -> Iterator[str]:
    """The packages that an import loads."""
    if isinstance(statement, ast.Import):
        yield from (alias.name.split(".")[0] for alias in statement.names)
    elif isinstance(statement, ast.ImportFrom) and not statement.level:
        yield (statement.module or "").split(".")[0]


def _future_flags(body: Sequence[ast.stmt]) -> int:
    flags = 0
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                flags |= getattr(__future__, alias.name).compiler_flag
    return flags
