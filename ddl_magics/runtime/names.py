"""Which names a cell uses and does not define, and how their values travel to the ranks.

As `%%px` users expect: a function, constant or array of the session that the cell mentions is there on every rank.
Values travel inside Spark's own broadcast, which is as trusted as the session itself.
"""

import ast
import builtins
import difflib
import io
import pickle
import symtable
import types

#: Names that every rank defines before the cell runs.
GIVEN = frozenset(("dataset", "validation", "ddl"))
#: Modules that a rank imports by itself where a cell uses their usual name without importing them.
USUAL_MODULES = {"keras": "keras", "tf": "tensorflow", "np": "numpy"}


class NameProblem(Exception):
    """A name of the cell cannot be had on the ranks: one line that says which and what to do."""


def free_names(source):
    """The global names that `source` reads and nowhere binds, as {name: first line}. SyntaxError passes through."""
    tree = ast.parse(source)
    table = symtable.symtable(source, "<cell>", "exec")
    bound = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    read = set()

    def visit(scope):
        for symbol in scope.get_symbols():
            name = symbol.get_name()
            if scope is table:
                if symbol.is_referenced():
                    read.add(name)
            elif symbol.is_global():
                if symbol.is_assigned():
                    bound.add(name)
                if symbol.is_referenced():
                    read.add(name)
        for child in scope.get_children():
            visit(child)

    visit(table)
    free = read - bound - set(dir(builtins))
    lines = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in free:
            lines[node.id] = min(node.lineno, lines.get(node.id, node.lineno))
    return {name: lines.get(name, 1) for name in free}


def _binds_unseen_names(source):
    """True where names may come into being that a reading of the source cannot see."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and any(alias.name == "*" for alias in node.names):
            return True
        if isinstance(node, ast.Name) and node.id in ("exec", "eval", "globals"):
            return True
    return False


def pack(source, namespace, given=()):
    """Pickle the values of `namespace` that the cell uses. given: names that ranks define beside `GIVEN`.

    Returns bytes for `unpack`. Raises NameProblem for a name that is nowhere defined or whose value cannot travel.
    """
    from pyspark import cloudpickle

    wanted = free_names(source)
    values, modules = {}, {}
    for name, line in sorted(wanted.items(), key=lambda item: item[1]):
        if name in GIVEN or name in given:
            continue
        if name in namespace:
            value = namespace[name]
            if isinstance(value, types.ModuleType):
                modules[name] = value.__name__
            else:
                values[name] = _pickle(name, value, cloudpickle)
        elif name in USUAL_MODULES:
            modules[name] = USUAL_MODULES[name]
        elif not _binds_unseen_names(source):
            raise NameProblem(_unknown(name, line, namespace))
    return pickle.dumps({"values": values, "modules": modules}, protocol=4)


def _unknown(name, line, namespace):
    if name == "get_ipython":
        return (
            "line %d: IPython magics and shell commands do not run on the workers; move them to a cell of their own"
            % line
        )
    near = difflib.get_close_matches(name, [n for n in namespace if not n.startswith("_")] + list(GIVEN), 1)
    hint = "; did you mean %r?" % near[0] if near else ""
    return "line %d: the name %r is defined neither in the cell nor in the session%s" % (line, name, hint)


def _pickle(name, value, cloudpickle):
    kind = type(value)
    if kind.__module__.startswith("pyspark."):
        fix = "name it with --data %s" % name if kind.__name__ == "DataFrame" else "Spark objects stay in the driver"
        raise NameProblem("%r is a %s of Spark and cannot travel to the workers; %s" % (name, kind.__name__, fix))
    buffer = io.BytesIO()
    try:
        cloudpickle.CloudPickler(buffer, protocol=4).dump(value)
    except Exception as error:  # whatever a value's __reduce__ raises
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise NameProblem(
            "%r (%s) cannot travel to the workers (%s); make it inside the cell" % (name, kind.__name__, reason)
        ) from None
    return buffer.getvalue()


def unpack(blob):
    """On a rank: {name: value} of what `pack` made. Raises NameProblem where a value cannot be restored here."""
    import importlib

    packed = pickle.loads(blob)
    namespace = {}
    for name, module in packed["modules"].items():
        try:
            namespace[name] = importlib.import_module(module)
        except ImportError as error:
            raise NameProblem(
                "the module %r, used as %r, is missing on the worker: %s" % (module, name, error)
            ) from None
    for name, blob in packed["values"].items():
        try:
            namespace[name] = pickle.loads(blob)
        except Exception as error:
            raise NameProblem("%r cannot be restored on the worker: %s" % (name, error)) from None
    return namespace
