"""What a cell leaves is set in its notebook, but over nothing that later cells have set."""

import collections
import importlib.abc
import importlib.machinery
import inspect
import io
import json
import os
import pickle
import random
import subprocess
import sys
import types
import zipfile

import keras
import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import StandardScaler

from ddl_magics.runtime.cell import names
from ddl_magics.runtime.variables import keras_attributes, placing
from ddl_magics.runtime.variables.left import FILE, INDEX, MAX_BYTES, CellVariables


class Notebook:
    """A namespace, and cells that run in a copy of it as on rank 0."""

    def __init__(self, folder, **variables):
        self.folder, self.variables, self._runs, self.mentioned = folder, variables, 0, None

    def start(self, source):
        """Returns what brings the run to its end."""
        self._runs += 1
        run, folder = f"run-{self._runs}", self.folder / str(self._runs)
        folder.mkdir()
        captured = names.captured(source, self.variables)
        placing.awaiting(run, source, captured, self.variables)
        there = {"__name__": "__main__", **pickle.loads(pickle.dumps(captured))}
        left = CellVariables(source, set(there), there)

        def end(change=lambda packed: packed):
            try:
                exec(source, there)
                finished = True
            except KeyboardInterrupt:
                finished = False
            packed = left.packed(there, (), finished)
            if packed is not None:
                (folder / FILE).write_bytes(change(packed))
            self._place = lambda mentioned: placing.place(
                run, self.variables, lambda name: str(folder / name) if packed else None, mentioned
            )
            return self.again(self.mentioned)

        return end

    def again(self, mentioned):
        """Place what has waited of the last run that has ended."""
        return self._place(mentioned)

    def run(self, source):
        return self.start(source)()


@pytest.fixture
def notebook(tmp_path):
    return Notebook(tmp_path, results=[], counter={"fits": 0}, x=np.arange(4.0), y=np.arange(3), seen={1}, n=1)


def test_what_the_cell_assigns_is_there_as_after_a_plain_cell(notebook):
    placed = notebook.run(
        "history = {'loss': [1.0, 0.5]}\nfor step in range(3): n += step\nbest = min(history['loss']); nothing = None"
    )
    variables = notebook.variables
    assert (variables["history"], variables["best"], variables["n"], variables["step"]) == (
        {"loss": [1.0, 0.5]},
        0.5,
        4,
        2,
    )
    assert variables["nothing"] is None
    assert sorted(placed.placed) == ["best", "history", "n", "nothing", "step"] and not placed.absent


def test_what_it_changes_is_changed_in_the_same_object(notebook):
    before = dict(notebook.variables)
    source = "results.append(0.5); counter['fits'] += 1; x *= 2; seen.add(2); y = y + 1; also = results"
    assert sorted(notebook.run(source).placed) == ["also", "counter", "results", "seen", "x", "y"]
    variables = notebook.variables
    assert all(variables[name] is before[name] for name in ("results", "counter", "x", "seen"))
    assert (variables["results"], variables["counter"], variables["seen"]) == ([0.5], {"fits": 1}, {1, 2})
    assert variables["x"].tolist() == [0, 2, 4, 6] and variables["y"].tolist() == [1, 2, 3]
    assert variables["also"] is variables["results"] and before["y"].tolist() == [0, 1, 2]


class Counter:
    """As of a cell of the notebook."""

    __module__ = "__main__"

    def __init__(self):
        self.value, self.seen, self.old, self.log = 0, [], 1, None


class Point:
    __module__ = "__main__"
    __slots__ = ("x",)


@pytest.fixture
def objects(notebook, monkeypatch):
    """A notebook with objects of its own classes, one of them also in a list."""
    for cls in (Counter, Point):
        monkeypatch.setattr(sys.modules["__main__"], cls.__name__, cls, raising=False)
    counter, point = Counter(), Point()
    point.x = {"y": 1}
    notebook.variables.update(counter=counter, point=point, counters=[Counter(), counter])
    return notebook


def test_an_object_of_the_notebooks_classes_gets_its_attributes(objects):
    counter, point, counters = (objects.variables[name] for name in ("counter", "point", "counters"))
    seen = counter.seen
    source = "counter.value += 1; counter.seen.append(2); counter.extra = counter.seen; del counter.old"
    placed = objects.run(source + "; point.x['y'] = 2; counters[0].value = 7; best = counters[0]")
    assert sorted(placed.placed) == ["best", "counter", "counter.seen", "counters[0]", "point.x"] and not placed.kept
    assert (counter.value, counter.seen, point.x, counters[0].value) == (1, [2], {"y": 2}, 7)
    assert counter.seen is counter.extra is seen and not hasattr(counter, "old")
    assert objects.variables["counters"] is counters and objects.variables["best"] is counters[0]


def test_an_attribute_that_cannot_come_is_said(objects):
    placed = objects.run("counter.value += 1; counter.log = (n for n in [])")
    assert placed.absent == {"counter.log": "a generator"} and objects.variables["counter"].value == 1


def test_generators_of_random_numbers_go_on_where_the_cell_has_stopped(notebook):
    made = {"rng": np.random.default_rng(3), "old": np.random.RandomState(4), "dice": random.Random(5)}
    notebook.variables.update(made)
    plain = pickle.loads(pickle.dumps(made))
    draws = "drawn = [rng.random(), old.normal(), dice.random()]"
    placed = notebook.run(draws)
    assert sorted(placed.placed) == ["dice", "drawn", "old", "rng"] and notebook.variables["rng"] is made["rng"]
    for _ in range(2):
        exec(draws, plain)
        assert notebook.variables["drawn"] == plain["drawn"]
        exec(draws, notebook.variables)


def test_what_an_estimator_and_a_callback_have_learned_is_in_them(notebook):
    scaler, stopping = StandardScaler(), keras.callbacks.EarlyStopping("loss")
    notebook.variables.update(steps=[("scale", scaler)], scaler=scaler, stopping=stopping)
    placed = notebook.run("scaler.fit(x[:, None]); stopping.set_model(len); stopping.best = 0.5; stopping.wait = 2")
    assert sorted(placed.placed) == ["scaler", "stopping"] and not placed.absent
    assert scaler.mean_.tolist() == [1.5] and scaler.transform([[1.5]]).tolist() == [[0.0]]
    assert (stopping.best, stopping.wait, stopping.model) == (0.5, 2, None)


@pytest.mark.parametrize("later", ["counter.value = 5", "counter = 1"])
def test_a_later_cells_attribute_wins(objects, later):
    end, counter = objects.start("counter.value += 1; counter.seen.append(1)"), objects.variables["counter"]
    exec(later, objects.variables)
    value = counter.value
    assert "counter" in end().kept and counter.value == value


def test_an_attribute_that_a_later_cell_sets_in_an_object_of_keras_wins(notebook):
    notebook.variables["metric"] = metric = keras.metrics.Mean()
    end = notebook.start("metric.threshold, metric.tags = 1, [2]; metric.update_state(3.0)")
    metric.threshold = 5
    placed = end()
    assert (placed.placed, placed.kept, placed.absent) == (["metric"], ["metric.threshold"], {})
    assert (metric.threshold, metric.tags, float(metric.result())) == (5, [2], 3.0)


@pytest.mark.parametrize("name", ["call", "__class__", "built", "_trainable", "_losses"])
def test_keras_own_attributes_and_methods_are_not_set(name):
    layer = keras.layers.Dense(2)
    with pytest.raises(ValueError, match="no attribute of a cell"):
        keras_attributes.set_value(layer, name, 1)


def test_a_table_gets_its_new_column(notebook):
    notebook.variables["table"] = pd.DataFrame({"a": [1, 2]})
    notebook.run("table['b'] = table['a'] * 2")
    assert notebook.variables["table"]["b"].tolist() == [2, 4]


def test_one_element_of_a_large_array_is_noticed(notebook):
    notebook.variables["large"] = large = np.zeros(1_000_000)
    notebook.run("large[12345] = 1")
    assert large[12345] == 1 and large.sum() == 1


def test_what_it_reads_alone_does_not_travel(notebook):
    assert notebook.run("print(x.sum(), results, counter)") == placing.Placed()


def test_a_stop_leaves_what_the_cell_has_come_to(notebook):
    placed = notebook.run("results.append(1); best = 2\nraise KeyboardInterrupt\nn = 3; h = n")
    variables = notebook.variables
    assert sorted(placed.placed) == ["best", "results"] and not placed.absent
    assert (variables["results"], variables["best"], variables["n"], "h" in variables) == ([1], 2, 1, False)


def test_a_name_that_it_deletes_is_gone(notebook):
    notebook.run("del n")
    assert "n" not in notebook.variables


@pytest.mark.parametrize(
    ("source", "later", "name"),
    [
        ("h = 1", "h = 2", "h"),
        ("n = 7", "n = 2", "n"),
        ("n = 7", "del n", "n"),
        ("results.append(1)", "results.append(2)", "results"),
        ("results.append(1)", "results = [2]", "results"),
        ("x[0] = 1", "x[0] = 2", "x"),
        ("def f(): pass", "f = 2", "f"),
        ("from math import pi", "pi = 3", "pi"),
        ("def n(): pass", "del n", "n"),
    ],
)
def test_a_later_cell_wins(notebook, source, later, name):
    end = notebook.start(source)
    exec(later, notebook.variables)
    expected = pickle.dumps(notebook.variables.get(name))
    assert end().kept == [name] and pickle.dumps(notebook.variables.get(name)) == expected


def test_of_two_runs_the_later_one_wins_in_whatever_order_they_end(notebook):
    first, second = notebook.start("h = 1"), notebook.start("h = 2")
    assert (first().placed, second().placed, notebook.variables["h"]) == (["h"], ["h"], 2)
    first, second = notebook.start("h = 3"), notebook.start("h = 4")
    assert (second().placed, first().kept, notebook.variables["h"]) == (["h"], ["h"], 4)


def test_what_cannot_come_is_said(notebook):
    placed = notebook.run(f"lines = (n for n in [])\nlarge = bytes({MAX_BYTES + 1})\nn = 3")
    assert placed.absent["lines"] == "a generator" and "write it to a file" in placed.absent["large"]
    assert placed.placed == ["n"]


DEFINITIONS = """
from __future__ import annotations
import functools, os.path as paths
from collections import Counter as Tally
from no_such_package import missing
SIZE = 3
def twice(function):
    @functools.wraps(function)
    def called(*args):
        return 2 * function(*args)
    return called
@twice
def area(width: Unknown, height=SIZE): return width * height
class Box:
    sides = [area(1) for _ in range(2)]
    def volume(self): return missing(self)
class Cube(Box):
    def __init__(self): super().__init__(); self.edge = SIZE
@functools.singledispatch
def text(value): return "any"
@text.register(int)
def _(value): return "int"
"""


def test_functions_classes_and_imports_are_made_of_the_cells_source(notebook, monkeypatch):
    package = types.ModuleType("no_such_package")
    package.missing = len
    end = notebook.start(DEFINITIONS)
    with monkeypatch.context() as on_rank:
        on_rank.setitem(sys.modules, "no_such_package", package)
        placed = end(lambda packed: on_rank.delitem(sys.modules, "no_such_package") or packed)
    variables = notebook.variables
    assert placed.absent == {
        "missing": "could not be imported here: ModuleNotFoundError: No module named 'no_such_package'"
    }
    assert placed.placed == ["SIZE", "functools", "paths", "Tally", "twice", "area", "Box", "Cube", "text"]
    assert (variables["area"](5), variables["Box"].sides, variables["Cube"]().edge) == (30, [6, 6], 3)
    assert variables["paths"] is os.path and variables["Tally"] is collections.Counter
    assert (variables["text"](1), variables["text"](""), "_" in variables) == ("int", "any", False)
    assert inspect.getsource(variables["twice"]).startswith("def twice(function):")  # TensorFlow's AutoGraph reads it
    with pytest.raises(NameError, match="missing"):
        variables["Cube"]().volume()


@pytest.mark.parametrize(
    ("source", "name", "reason"),
    [
        ("if n:\n    def f(): pass", "f", "defined in a block"),
        ("try:\n    import json\nexcept ImportError:\n    json = None", "json", "assigns or deletes it"),
        ("def f(): pass\nf = [f]", "f", "assigns or deletes it"),
        ("size = 1\ndef f(k=size): return k\nsize = 2", "f", "reads size, which the cell assigns again later"),
        ("from math import *", "* of math", "import its names"),
        ("ddl = 1\ndef f(k=ddl): pass\ndel ddl", "f", "reads ddl"),
        ("ok = (n for n in [])\n@next(ok, lambda f: f)\ndef f(): pass", "f", "could not be defined here: NameError"),
        ("class Box: count = 0\nBox.count += 1", "Box.count", "stay on the workers"),
    ],
)
def test_a_definition_that_would_be_another_here_is_said(notebook, source, name, reason):
    placed = notebook.run(source)
    assert reason in placed.absent[name] and name not in notebook.variables


def test_what_the_notebook_has_already_needs_no_word(notebook):
    notebook.variables["json"] = json
    assert notebook.run("import json").placed == []
    end = notebook.start("import zipfile")
    notebook.variables["zipfile"] = zipfile
    assert end() == placing.Placed()


def test_the_same_cell_defines_its_functions_again(notebook):
    notebook.run("def f(k: int = 0): return n\nn = 2")
    first = notebook.variables["f"]
    assert first.__annotations__ == {"k": int}  # not as text: the cell has no `from __future__ import annotations`
    assert notebook.run("def f(): return n\nn = 3\ndef f(): return -n").placed == ["n", "f"]
    assert first() == 3 and notebook.variables["f"]() == -3


def test_a_stopped_cell_has_defined_what_it_has_come_to(notebook):
    source = (
        "def f(): return n\nimport zipfile\ndef g(): return 1\nraise KeyboardInterrupt\ndef g(): pass\ndef h(): pass"
    )
    placed = notebook.run(source)
    assert (placed.placed, placed.absent) == (["f", "zipfile"], {"g": "the cell defines it again, and was stopped"})
    assert notebook.variables["f"]() == 1 and not {"g", "h"} & notebook.variables.keys()


BOXES = """
from dataclasses import dataclass
class Box:
    def __init__(self, size): self.size, self.inner = size, None
    def volume(self): return self.size ** SIZE
@dataclass
class Pair:
    first: Box
    second: Box
SIZE = 3
box = Box(2)
box.inner = box
pair = Pair(box, Box(n))
results.append(box)
own = Own()
own.value = [box]
broken = Box(open)
"""


class Own:
    __module__ = "__main__"
    __slots__ = ("value",)


def test_instances_of_the_cells_classes_and_of_the_notebooks(notebook, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "Own", Own, raising=False)
    notebook.variables.update(Own=Own, __name__="__main__")
    placed = notebook.run(BOXES)
    variables = notebook.variables
    box, pair, own = variables["box"], variables["pair"], variables["own"]
    assert placed.absent == {"broken": "a builtin_function_or_method"} and not placed.kept
    assert box.volume() == 8 and box.inner is box and type(box) is variables["Box"]
    assert type(pair) is variables["Pair"] and pair.first is box and pair.second.size == 1
    assert type(own) is Own and own.value == [box] and variables["results"] == [box]


def test_no_instance_of_a_class_that_is_none_of_the_notebooks(notebook):
    """Whatever a cluster sends, and where a later cell has replaced the class."""
    notebook.variables["__name__"] = "__main__"
    instance = [{"instance": ["Popen", [["args", "ls"]]]}]
    notebook.variables["Popen"] = subprocess.Popen
    placed = notebook.start("h = 1")(edited(values={"h": {"object": 0}}, objects=instance))
    assert placed.absent == {"h": "its class Popen is not here"} and "h" not in notebook.variables
    end = notebook.start("class Box: pass\nbox = Box()")
    notebook.variables["Box"] = Own
    assert end().absent == {"box": "its class Box is not here"}


def test_keras_is_imported_when_a_cell_mentions_what_needs_it(notebook, monkeypatch):
    notebook.mentioned = ["other"]
    end = notebook.start("from keras import ops\n@ops.wrap\ndef f(): return 1\ndef g(): return ops")
    package = types.ModuleType("keras")
    package.ops = types.SimpleNamespace(wrap=lambda function: lambda: 2)
    monkeypatch.setitem(sys.modules, "keras", package)
    placed = end(lambda packed: monkeypatch.delitem(sys.modules, "keras") or packed)
    assert (placed.placed, placed.waiting) == (["g"], ["ops", "f"])
    monkeypatch.setitem(sys.modules, "keras", package)
    monkeypatch.delitem(sys.modules, "keras")
    with monkeypatch.context() as imports:
        imports.setattr(sys, "meta_path", [KerasFinder(package), *sys.meta_path])
        assert notebook.again(["unrelated"]).waiting == ["ops", "f"] and "keras" not in sys.modules
        assert notebook.again(["g"]).placed == ["ops", "f"]
    assert notebook.variables["f"]() == 2 and notebook.variables["g"]() is package.ops


class KerasFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the package that it has got as Keras."""

    def __init__(self, package):
        self._package = package

    def find_spec(self, name, path, target=None):
        return importlib.machinery.ModuleSpec(name, self) if name == "keras" else None

    def create_module(self, spec):
        return self._package

    def exec_module(self, module):
        pass


def edited(**parts):
    def change(packed):
        archive = zipfile.ZipFile(io.BytesIO(packed))
        index = json.loads(archive.read(INDEX)) | parts
        with zipfile.ZipFile(buffer := io.BytesIO(), "w") as changed:
            changed.writestr(INDEX, json.dumps(index))
        return buffer.getvalue()

    return change


def test_only_names_that_the_cell_assigns_are_set(notebook):
    """Whatever a cluster sends."""
    end = notebook.start("h = 1")
    end(edited(values={"h": 2, "print": 3}, changed={"counter": {"dict": []}}, deleted=["n"]))
    variables = notebook.variables
    assert (variables["h"], variables["counter"], variables["n"]) == (2, {"fits": 0}, 1) and "print" not in variables


@pytest.mark.parametrize(
    "change",
    [
        lambda packed: b"no archive",
        lambda packed: packed[: len(packed) // 2],
        edited(values=[]),
        edited(values={"h": {"array": 0}}),
        edited(values={"h": {"object": 9}}),
        edited(trained={"x": {}}),
        edited(trained={"x": {"model": "0", "history": None}}),
        edited(absent={"h": []}),
        edited(streams={"Python": [3, [1] * 624, None]}),
        edited(streams={"NumPy": ["MT19937", [1 << 32] * 624, 0, 0, 0.0]}),
        edited(streams={"Keras": [1, [0, "1"]]}),
        edited(streams={"Fortran": 1}),
        edited(changed={"rng": {"random": {"tuple": [3]}}}),
    ],
)
def test_a_file_of_another_form_sets_nothing(notebook, change):
    notebook.variables["rng"] = np.random.default_rng(3)
    before = dict(notebook.variables)
    placed = notebook.start("h = rng.random()")(change)
    assert "cannot be read" in placed.absent["the variables of the run"] and notebook.variables == before


@keras.saving.register_keras_serializable()
class Stubborn(keras.layers.Layer):
    """As of a cell of the notebook."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.limit, self.seen, self.other = 1, [], 1

    def __setattr__(self, name, value):
        if name == "limit" and hasattr(self, "limit"):
            raise RuntimeError("the limit is fixed")
        super().__setattr__(name, value)


def changed_index(change):
    """Edits the file of a run, and keeps its arrays."""

    def edit(packed):
        archive = zipfile.ZipFile(io.BytesIO(packed))
        index = json.loads(archive.read(INDEX))
        change(index)
        with zipfile.ZipFile(buffer := io.BytesIO(), "w") as changed:
            for name in archive.namelist():
                changed.writestr(name, json.dumps(index) if name == INDEX else archive.read(name))
        return buffer.getvalue()

    return edit


def test_what_keras_refuses_of_one_object_costs_that_object_alone(notebook):
    words, metric = keras.layers.StringLookup(), keras.metrics.Mean()
    two = keras.Sequential([keras.layers.StringLookup(name="a"), keras.layers.StringLookup(name="b")])
    words.set_vocabulary(["x"])
    for layer in two.layers:
        layer.set_vocabulary(["x"])
    notebook.variables.update(words=words, metric=metric, two=two)
    end = notebook.start(
        "words.set_vocabulary(['y'])\nmetric.update_state(3.0)\nn = 2\n"
        "for layer in two.layers: layer.set_vocabulary(['y'])\nlayer = None"
    )

    def twice(index):
        index["changed"]["words"]["keras"]["tables"][0][1] = ["[UNK]", "y", "y"]
        index["changed"]["two"]["keras"]["tables"][1][1] = ["[UNK]", "y", "y"]

    placed = end(changed_index(twice))
    assert sorted(placed.placed) == ["layer", "metric", "n"] and sorted(placed.absent) == ["two", "words"]
    assert placed.absent["words"].startswith("it cannot be set here (") and "\n" not in placed.absent["words"]
    assert words.get_vocabulary() == ["[UNK]", "x"] and float(metric.result()) == 3.0
    assert [layer.get_vocabulary() for layer in two.layers] == [["[UNK]", "x"]] * 2


def test_an_attribute_that_a_class_refuses_costs_that_attribute_alone(notebook):
    notebook.variables["layer"] = layer = Stubborn()
    placed = notebook.run("object.__setattr__(layer, 'limit', 2); layer.seen.append(1); layer.other = 2")
    assert placed.absent == {"layer.limit": "it cannot be set here (the limit is fixed)"}
    assert (layer.limit, layer.seen, layer.other) == (1, [1], 2)


def test_damage_of_what_is_decoded_late_sets_nothing_either(notebook):
    notebook.variables["__name__"] = "__main__"
    end = notebook.start("class Box: pass\nbox = Box()\nbox.size = 1\nn = 5\nresults.append(1)")

    def damage(index):
        for entry in index["objects"]:
            if "instance" in entry:
                entry["instance"][1] = [["size", {"nothing": 1}]]

    placed = end(changed_index(damage))
    assert list(placed.absent) == ["the variables of the run"] and not placed.placed
    assert (notebook.variables["n"], notebook.variables["results"], "Box" in notebook.variables) == (1, [], False)


@keras.saving.register_keras_serializable()
class Seen(keras.metrics.Mean):
    """Of a cell of the notebook: it keeps a list."""

    def __init__(self, name="seen"):
        super().__init__(name)
        self.sums = []

    def update_state(self, truth, predicted, sample_weight=None):
        self.sums.append(float(keras.ops.sum(truth)))
        super().update_state(truth)

    def get_config(self):
        return {"name": self.name}


@pytest.fixture
def compiled(notebook):
    """A notebook with a compiled model whose metric is an object."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", metrics=["mae", seen := Seen()], run_eagerly=True)
    notebook.variables.update(model=model, rows=np.ones((4, 1)), Seen=Seen)
    return notebook, seen


def test_what_a_metric_of_compile_keeps_in_python_comes(compiled):
    notebook, seen = compiled
    sums = seen.sums
    placed = notebook.run("score = model.evaluate(rows, rows, batch_size=2, verbose=0)[0]")
    assert not placed.absent and seen.sums is sums == [2.0, 2.0] and float(seen.result()) == 1.0


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("model.compile('adam', 'mse')", {"model.compile": "that the cell does not fit"}),
        (
            "model.compile('sgd', 'mse', metrics=[Seen('own')], run_eagerly=True)\nn = model.evaluate(rows, rows)[0]",
            {"model.compile": "compile it again", "model.metrics['own'].sums": "make it in a cell before"},
        ),
    ],
)
def test_what_does_not_come_of_a_compile_is_said(compiled, source, lines):
    notebook, _ = compiled
    absent = notebook.run(source).absent
    assert absent.keys() == lines.keys() and all(text in absent[name] for name, text in lines.items())
