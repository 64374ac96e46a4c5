"""A kernel offers the names and signatures of the contract, and no other.

`_native.pyi` is read, not imported; what it says in words is tested everywhere else.
"""

import ast
import concurrent.futures
import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import filch._kernel

CONTRACT = ast.parse(Path(filch._kernel.__file__).with_name("_native.pyi").read_text("utf-8"))
DEFINITIONS = {node.name: node for node in CONTRACT.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
CLASSES = {name: node for name, node in DEFINITIONS.items() if isinstance(node, ast.ClassDef)}
CONSTANTS = {
    node.target.id for node in CONTRACT.body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
}
METHODS = [
    (owner, method) for owner, node in CLASSES.items() for method in node.body if isinstance(method, ast.FunctionDef)
]
P = inspect.Parameter


def contract_signature(function: ast.FunctionDef) -> list[tuple[str, Any, Any]]:
    """Return name, kind and default (as source text) of each parameter."""
    given = function.args
    plain = [*given.posonlyargs, *given.args]
    defaults: list[Any] = [P.empty] * (len(plain) - len(given.defaults)) + [
        ast.unparse(node) for node in given.defaults
    ]
    found = [
        (argument.arg, P.POSITIONAL_ONLY if argument in given.posonlyargs else P.POSITIONAL_OR_KEYWORD, default)
        for argument, default in zip(plain, defaults, strict=True)
    ]
    if given.vararg:
        found.append((given.vararg.arg, P.VAR_POSITIONAL, P.empty))
    found += [
        (argument.arg, P.KEYWORD_ONLY, P.empty if default is None else ast.unparse(default))
        for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        found.append((given.kwarg.arg, P.VAR_KEYWORD, P.empty))
    return found


def actual_signature(function: Any) -> list[tuple[str, Any, Any]]:
    """Return the same of a function that runs; a private parameter with a default is nobody's business."""
    return [
        (parameter.name, parameter.kind, P.empty if parameter.default is P.empty else repr(parameter.default))
        for parameter in inspect.signature(function).parameters.values()
        if not (parameter.name.startswith("_") and parameter.default is not P.empty)
    ]


def test_public_names(kernel: ModuleType) -> None:
    """A name of the contract is missing, or the kernel defines a public one that is not in it."""
    own = {
        name
        for name, value in vars(kernel).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isroutine(value))
        and value.__module__ == kernel.__name__
    }
    assert own <= set(DEFINITIONS)
    assert [name for name in (*DEFINITIONS, *CONSTANTS) if not hasattr(kernel, name)] == []
    assert kernel.__name__.endswith(f"_{kernel.implementation}")


def test_the_chooser_hands_over_all_of_the_contract() -> None:
    """`filch._kernel` forgets a name of the contract, or has one more."""
    assert set(filch._kernel.__all__) == {*DEFINITIONS, *CONSTANTS}
    assert all(getattr(filch._kernel, name).__module__.startswith("filch._kernel._") for name in DEFINITIONS)


@pytest.mark.parametrize("owner", CLASSES)
def test_public_members(kernel: ModuleType, owner: str) -> None:
    """A class has a public member of its own that the contract does not know."""
    inherited = set(dir(concurrent.futures.Future)) if owner == "Future" else set(dir(object))
    allowed = inherited | {member.name for member in CLASSES[owner].body if isinstance(member, ast.FunctionDef)}
    members = {name for name in vars(getattr(kernel, owner)) if not name.startswith("_")}
    assert members <= allowed


@pytest.mark.parametrize(("owner", "method"), METHODS, ids=[f"{owner}.{method.name}" for owner, method in METHODS])
def test_methods(kernel: ModuleType, owner: str, method: ast.FunctionDef) -> None:
    """A method is missing or is called in another way than the contract says."""
    actual = inspect.getattr_static(getattr(kernel, owner), method.name)
    if any(isinstance(decorator, ast.Name) and decorator.id == "property" for decorator in method.decorator_list):
        assert inspect.isdatadescriptor(actual)
        return
    actual = getattr(getattr(kernel, owner), method.name)
    if method.name == "__init__":
        actual = getattr(kernel, owner)
    if method.name.startswith("__") and method.name != "__init__":  # called by the interpreter, by position
        inspect.signature(actual).bind(*[None] * len(contract_signature(method)))
        return
    assert [*actual_signature(actual)][method.name != "__init__" :] == contract_signature(method)[1:]  # without `self`


@pytest.mark.parametrize("name", [name for name in DEFINITIONS if name not in CLASSES])
def test_functions(kernel: ModuleType, name: str) -> None:
    """A function is called in another way than the contract says."""
    function = DEFINITIONS[name]
    assert isinstance(function, ast.FunctionDef)
    assert actual_signature(getattr(kernel, name)) == contract_signature(function)


def test_a_future_is_the_standard_librarys(kernel: ModuleType) -> None:
    """What looks for `concurrent.futures.Future` does not find it in a kernel's future."""
    assert issubclass(kernel.Future, concurrent.futures.Future)
    assert isinstance(kernel.Future(), concurrent.futures.Future)


def test_an_engine_can_be_a_base_class(kernel: ModuleType) -> None:
    """`filch.Pool` cannot derive from the engine beside another base class."""
    pool = type("Pool", (kernel.Engine, concurrent.futures.ThreadPoolExecutor), {})
    assert pool.submit in (kernel.Engine.submit, vars(kernel.Engine)["submit"])


def test_submit_takes_a_keyword_called_like_its_own_parameters(make_engine: Any) -> None:
    """A task cannot have an argument called `fn` or `self`."""
    engine = make_engine()
    assert engine.submit(dict, fn=1, self=2, args=3).result(20) == {"fn": 1, "self": 2, "args": 3}


@pytest.mark.parametrize("call", ["submit", "_spawn"])
def test_what_cannot_be_called_is_refused_at_once(make_engine: Any, call: str) -> None:
    """A task that is no callable fails later, in a worker, where nobody sees why."""
    engine = make_engine()
    with pytest.raises(TypeError, match="callable"):
        getattr(engine, call)("not callable")
    assert engine._counters()["submitted"] == 0
