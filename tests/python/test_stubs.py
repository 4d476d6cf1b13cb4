# SPDX-License-Identifier: Apache-2.0
"""The stub _core.pyi names what the native module has: its functions, classes and members, and their parameters."""

import ast
import inspect
import pathlib

import pytest
import thalweg
from thalweg import _core

STUB = pathlib.Path(thalweg.__file__).with_name("_core.pyi")
TREE = ast.parse(STUB.read_text())
CLASSES = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef)}
# What Python gives every object or wants for a protocol, and what the stub says by its base class _Closing.
IMPLIED = set(dir(object)) | {"__enter__", "__exit__", "__module__"}
BUFFER = "__buffer__"  # of Python 3.12; earlier ones do not show who has the buffer protocol


def names_in(body):
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(node.target.id)
    return names


def parameters_in_stub(function):
    spec = function.args
    given = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs]
    return [argument.arg for argument in given if argument.arg != "self"]


def parameters_in_module(function):
    return [name for name in inspect.signature(function).parameters if name != "self"]


def functions():
    for node in TREE.body:
        if isinstance(node, ast.FunctionDef):
            yield pytest.param(node, getattr(_core, node.name, None), id=node.name)
    for name, owner in CLASSES.items():
        for node in owner.body:
            if not isinstance(node, ast.FunctionDef) or not hasattr(_core, name):
                continue
            real = (
                getattr(_core, name)
                if node.name == "__init__"
                else inspect.getattr_static(getattr(_core, name), node.name, None)
            )
            real = getattr(real, "__func__", real)
            if callable(real) and not inspect.isfunction(real) and (node.name == "__init__" or not node.name.startswith("__")):
                yield pytest.param(node, real, id=f"{name}.{node.name}")


def test_the_module_has_what_the_stub_says_and_no_more():
    public = {name for name in dir(_core) if not (name.startswith("__") and name != "__version__")}
    stub = names_in(TREE.body) | set(CLASSES) - {"_Closing", "_DLPack"}
    assert stub == public


@pytest.mark.parametrize("name", sorted(set(CLASSES) - {"_Closing", "_DLPack"}))
def test_a_class_has_the_members_that_the_stub_says(name):
    real = getattr(_core, name)
    stub = names_in(CLASSES[name].body)
    assert stub - {BUFFER} - set(dir(real)) == set(), "in the stub only"
    assert set(dir(real)) - stub - IMPLIED - {BUFFER} == set(), "in the module only"
    closes = any(isinstance(base, ast.Name) and base.id == "_Closing" for base in CLASSES[name].bases)
    assert closes == hasattr(real, "__enter__")


@pytest.mark.parametrize(("stub", "real"), list(functions()))
def test_a_function_takes_the_parameters_that_the_stub_says(stub, real):
    assert parameters_in_stub(stub) == parameters_in_module(real)
