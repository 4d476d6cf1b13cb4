# SPDX-License-Identifier: Apache-2.0
"""inspect.signature for the native module: nanobind knows the parameters of its functions in a form of its own, and its types
are closed to Python."""

from __future__ import annotations

import ast
import inspect
import re
from typing import Any

from . import _core

_Kind = inspect.Parameter


def signature_of(function: Any) -> inspect.Signature:
    """The parameters of a function or method of the native module; of a constructor those of its last form."""
    text, _, *rest = function.__nb_signature__[-1]
    defaults = (rest[0] if rest else None) or ()
    tree: Any = ast.parse(re.sub(r"= \\(\d+)", r"= \1", text) + ": ...").body[0]
    spec = tree.args

    def default(node: Any) -> Any:
        return _Kind.empty if node is None else defaults[node.value]

    plain: list[tuple[Any, Any]] = [(argument, _Kind.POSITIONAL_ONLY) for argument in spec.posonlyargs]
    plain += [(argument, _Kind.POSITIONAL_OR_KEYWORD) for argument in spec.args]
    nodes = [None] * (len(plain) - len(spec.defaults)) + spec.defaults
    parameters = [_Kind(argument.arg, kind, default=default(node)) for (argument, kind), node in zip(plain, nodes, strict=True)]
    if spec.vararg is not None:
        parameters.append(_Kind(spec.vararg.arg, _Kind.VAR_POSITIONAL))
    for argument, node in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
        parameters.append(_Kind(argument.arg, _Kind.KEYWORD_ONLY, default=default(node)))
    if spec.kwarg is not None:
        parameters.append(_Kind(spec.kwarg.arg, _Kind.VAR_KEYWORD))
    return inspect.Signature(parameters)


def _bound_signature(method: Any) -> inspect.Signature:
    whole = signature_of(method)
    return whole.replace(parameters=list(whole.parameters.values())[1:])


def install() -> None:
    """Has inspect.signature find them."""
    for kind in (type(_core.status_name), type(_core.Block.__len__)):
        _core._give_signature(kind, property(signature_of))
    _core._give_signature(type(_core.Block(1).__len__), property(_bound_signature))
