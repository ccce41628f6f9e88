"""Counts that show how readable the code is.

    python scripts/counts.py [REVISION]     # all counts, beside those of a git revision
    python scripts/counts.py --names ROOM   # where a room, such as runtime/data, binds a vague name

tests/project/test_counts.py sets a bound for some of them.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "ddl_magics"

#: Words that do not say which thing they stand for. A name is vague if it is one of them.
VAGUE = frozenset(
    re.findall(
        r"\w+",
        """
        about again all allowed already answered any asked back beside better both called chosen done each else
        end ends ended enough first former found four full given gone good heard held her here his how it its kept
        known last later latest left less made many meant met mine more most moved much named near needed news
        next none nothing now old once one only other others ours own owned part parts past place places put ready
        reached rest same said seen sent several shown so some something such taken tell that their them then
        there these they thing things this those three told too tried turn turns two used usual wanted way ways
        what when where which who whole whose why wish with without word wrong
        """,
    )
)

#: Two words that tell two things of a kind apart: where a function binds both, neither is vague.
PAIRS = (("first", "second"), ("first", "last"), ("left", "right"), ("old", "new"))

#: Names of fields in stored events, which earlier versions have written and later ones read.
STORED = {"runtime/events": ("ready", "needed", "sent", "wanted", "things", "done")}

Trees = Mapping[Path, ast.Module]


def read(folder: Path) -> Trees:
    """The parsed files of the package in a folder, by path relative to it."""
    paths = sorted((folder / PACKAGE).rglob("*.py"))
    return {path.relative_to(folder): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def room(path: Path) -> str:
    """The folder of a file, or the file itself where it stands beside folders."""
    inner = path.relative_to(PACKAGE)
    depth = 2 if inner.parts[0] == "runtime" and len(inner.parts) > 1 else 1
    return "/".join(inner.with_suffix("").parts[:depth])


def bound_names(tree: ast.Module) -> Iterator[tuple[str, int, bool]]:
    """(name, line, whether it is vague) of what a file binds: each name once in each function or class."""
    scopes: list[ast.AST] = [tree]
    while scopes:
        scope = scopes.pop()
        lines: dict[str, int] = {}
        for node in _of_scope(scope):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
                scopes.append(node)
            for name in _bound(node):
                lines.setdefault(name, getattr(node, "lineno", 0))
        paired = {name for pair in PAIRS if lines.keys() >= set(pair) for name in pair}
        yield from ((name, line, is_vague(name) and name not in paired) for name, line in lines.items())


def _of_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function or class, without those of functions and classes inside of it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _of_scope(node)


def _bound(node: ast.AST) -> Iterator[str]:
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.attr


def is_vague(name: str) -> bool:
    return not name.startswith("__") and name.strip("_").lower() in VAGUE


def vague_names(trees: Trees) -> dict[str, tuple[int, int]]:
    """{room: (vague names, bound names)}."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, tree in trees.items():
        for name, _, vague in bound_names(tree):
            counts[room(path)][0] += vague and name not in STORED.get(room(path), ())
            counts[room(path)][1] += 1
    return {name: (vague, bound) for name, (vague, bound) in sorted(counts.items())}


def imports(trees: Trees, typing: bool, functions: bool, packages: bool = False) -> dict[str, set[str]]:
    """{module: modules of the package that it imports}.

    Args:
        typing: with the imports for type checkers alone.
        functions: with those inside functions.
        packages: with the `__init__` of a folder, where something is imported from the folder.
    """
    modules = {".".join(path.with_suffix("").parts) for path in trees}
    return {
        ".".join(path.with_suffix("").parts): set(_imported(path, tree, modules, typing, functions, packages))
        for path, tree in trees.items()
    }


def _imported(
    path: Path, tree: ast.Module, modules: set[str], typing: bool, functions: bool, packages: bool
) -> Iterator[str]:
    module = ".".join(path.with_suffix("").parts)
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) and not typing:
            nodes += node.orelse
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and not functions:
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            origin = ".".join([*package, *filter(None, [node.module])])
            names = [origin, *(f"{origin}.{alias.name}" for alias in node.names)]
        else:
            continue
        if packages:
            names += [f"{name}.__init__" for name in names]
        yield from {name for name in names if name in modules and name != module}


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, directly or by way of others: strongly connected components."""
    indices: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        indices[module] = lowest[module] = len(indices)
        stack.append(module)
        for target in sorted(graph[module]):
            if target not in indices:
                visit(target)
            if target in stack:
                lowest[module] = min(lowest[module], lowest[target])
        if lowest[module] == indices[module]:
            group = stack[stack.index(module) :]
            del stack[stack.index(module) :]
            if len(group) > 1:
                groups.append(sorted(group))

    for module in sorted(graph):
        if module not in indices:
            visit(module)
    return groups


def any_types(trees: Trees) -> int:
    """How often `Any` stands in an annotation or an alias of a type."""
    return sum(isinstance(node, ast.Name) and node.id == "Any" for tree in trees.values() for node in ast.walk(tree))


def dict_returns(trees: Trees) -> int:
    """Functions whose result is annotated as a dict or mapping with values of any type."""
    return sum(
        bool(re.match(r"(dict|Dict|Mapping|MutableMapping)\[str, Any\]", ast.unparse(node.returns)))
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.returns is not None
    )


def cluster_checks(trees: Trees) -> list[str]:
    """ "file:line" of each check of a cluster's class outside of clusters/."""
    return [
        f"{path}:{node.lineno}"
        for path, tree in trees.items()
        if room(path) != "clusters"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and re.search(r"Cluster\b|KernelSession\b", ast.unparse(node.args[1]))
    ]


def loose_reads(trees: Trees) -> int:
    """Reads of an event or a spec by a key: `event["loss"]`, `spec.get("workers")`."""
    total = 0
    for tree in trees.values():
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Subscript)
                and isinstance(node.ctx, ast.Load)
                and isinstance(node.slice, ast.Constant)
            ):
                holder, key = node.value, node.slice.value
            elif (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "get"
                and node.args
            ):
                holder, key = node.func.value, getattr(node.args[0], "value", None)
            else:
                continue
            name = ast.unparse(holder).rpartition(".")[2].strip("_")
            total += isinstance(key, str) and name in ("event", "e", "spec")
    return total


def largest_classes(trees: Trees, most: int = 6) -> list[tuple[str, int, int]]:
    """(class, methods, attributes that it assigns) of the classes with most of both."""
    sizes = []
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) for member in node.body)
                attributes = {
                    target.attr
                    for target in ast.walk(node)
                    if isinstance(target, ast.Attribute)
                    and isinstance(target.ctx, ast.Store)
                    and ast.unparse(target.value) == "self"
                }
                sizes.append((f"{room(path)}: {node.name}", methods, len(attributes)))
    return sorted(sizes, key=lambda size: -size[1] - size[2])[:most]


def names_alike(trees: Trees) -> dict[str, int]:
    """{name: how many classes of the package have it}, for those that several have."""
    classes = Counter(
        node.name.strip("_") for tree in trees.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in classes.most_common() if count > 1}


def option_places(folder: Path, option: str = "sync_batchnorm") -> tuple[int, int]:
    """(files that name an option's field, of which so many declare it as a field or key)."""
    texts = [path.read_text(encoding="utf-8") for path in (folder / PACKAGE).rglob("*.py")]
    naming = [text for text in texts if re.search(rf"\b{option}\b", text)]
    declaring = [
        text for text in naming if re.search(rf"^ +{option}: |\(\"{option}\"|^ +{option}=", text, re.MULTILINE)
    ]
    return len(naming), len(declaring)


def lines(folder: Path) -> dict[str, int]:
    """{part of the repository: its lines of code}."""
    parts = {
        "package": (folder / PACKAGE).rglob("*.py"),
        "tests": (folder / "tests").rglob("*.py"),
        "front end": [path for path in (folder / "labextension").rglob("*") if path.suffix in (".ts", ".tsx", ".css")],
    }
    return {
        name: sum(
            len(path.read_text(encoding="utf-8").splitlines()) for path in paths if "node_modules" not in path.parts
        )
        for name, paths in parts.items()
    }


def table(folder: Path) -> dict[str, str]:
    """{what is counted: the count} of a checkout."""
    trees = read(folder)
    names = vague_names(trees)
    vague, bound = (sum(counts[index] for counts in names.values()) for index in (0, 1))
    rows = {"vague names": f"{100 * vague / bound:.2f} %"}
    rows |= {f"  {name}": f"{100 * vague / bound:.2f} %" for name, (vague, bound) in names.items() if vague}
    for label, typing, functions in (
        ("circles of imports", False, False),
        ("  with those inside functions", False, True),
        ("  with those for type checkers", True, False),
        ("  with all", True, True),
    ):
        groups = circles(imports(trees, typing, functions))
        rows[label] = f"{len(groups)} ({sum(map(len, groups))} files)"
    rows["Any"] = str(any_types(trees))
    rows["functions that return a loose dict"] = str(dict_returns(trees))
    rows["loose reads of events and specs"] = str(loose_reads(trees))
    rows["isinstance of a cluster outside of clusters/"] = str(len(cluster_checks(trees)))
    rows["files that name sync_batchnorm, declare it"] = "{}, {}".format(*option_places(folder))
    for name, methods, attributes in largest_classes(trees):
        rows[f"methods, attributes of {name}"] = f"{methods}, {attributes}"
    rows["class names that several classes have"] = str(len(names_alike(trees)))
    rows |= {f"lines: {name}": f"{count:,}" for name, count in lines(folder).items()}
    return rows


def _at_revision(revision: str) -> dict[str, str]:
    archive = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
        return table(Path(folder))


def _print_names(wanted: str) -> None:
    for path, tree in read(ROOT).items():
        if room(path).startswith(wanted):
            for name, line, vague in sorted(bound_names(tree), key=lambda binding: binding[1]):
                if vague:
                    print(f"{path}:{line} {name}")


def main(arguments: list[str]) -> None:
    if {"-h", "--help"}.intersection(arguments):
        print(__doc__)
        return
    if arguments[:1] == ["--names"]:
        _print_names("".join(arguments[1:]))
        return
    columns = [table(ROOT), *map(_at_revision, arguments)]
    print(f"{'':<52}{'now':>16}" + "".join(f"{revision:>16}" for revision in arguments))
    for row in dict.fromkeys(name for column in columns for name in column):
        print(f"{row:<52}" + "".join(f"{column.get(row, '-'):>16}" for column in columns))


if __name__ == "__main__":
    main(sys.argv[1:])
