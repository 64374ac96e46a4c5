"""From the words on the command line to the function: `package.module:attribute` or `path/to/file.py:attribute`.

Everything that can be wrong with the words is refused here, before an input is read.  Not here: calling it.
"""

import difflib
import importlib
import importlib.util
import inspect
import os
import shlex
import sys
import traceback
from collections.abc import Callable
from importlib.machinery import SourceFileLoader
from types import ModuleType

from filch.cli._refusal import Refusal


def load(target: str) -> Callable[[object], object]:
    """Import what is before the colon of `target` and return the callable that is named after it."""
    place, _, attribute = target.rpartition(":")
    if not place or not attribute:
        raise Refusal(f"FUNCTION must be MODULE:NAME or FILE.py:NAME, not {target!r}; for example json:loads")
    by_file = place.endswith(".py") or "/" in place or os.sep in place
    module = _from_file(place) if by_file else _from_module(place)
    found = _look_up(module, place, attribute)
    if not callable(found):
        raise Refusal(
            f"{target!r} must be callable, not {_article(type(found).__name__)}; name a function of {place!r}"
        )
    if inspect.iscoroutinefunction(found) or inspect.iscoroutinefunction(getattr(found, "__call__", None)):  # noqa: B004
        raise Refusal(
            f"{target!r} must be a plain function, not a coroutine function; name one that calls asyncio.run() inside"
        )
    function: Callable[[object], object] = found
    return function


def _from_module(name: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise Refusal(f"a module must have a dotted name such as package.module, not {name!r}; a file must end in .py")
    _make_importable(os.getcwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            raise Refusal(
                f"no module named {error.name!r} in the current folder or among the installed packages; "
                "check the name, or give a file as path/to/file.py:NAME"
            ) from None
        raise _import_failed(name, f"import {name}", error) from None
    except (Exception, SystemExit) as error:
        raise _import_failed(name, f"import {name}", error) from None


def _from_file(path: str) -> ModuleType:
    if not os.path.isfile(path):
        if os.path.isfile(path + ".py"):
            raise Refusal(f"no such file: {path!r}; did you mean {path + '.py'!r}")
        raise Refusal(f"no such file: {path!r}; check the path, it is taken from {os.getcwd()!r}")
    full = os.path.abspath(path)
    # As for a script: its own folder comes first, so that it finds the modules beside it.
    _make_importable(os.getcwd())
    _make_importable(os.path.dirname(full))
    name = _free_name(os.path.splitext(os.path.basename(full))[0])
    spec = importlib.util.spec_from_file_location(name, full, loader=SourceFileLoader(name, full))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up by name
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(path, None, error) from None
    return module


def _free_name(stem: str) -> str:
    """Return a module name for a file that hides no module which is, or may yet be, imported under that name."""
    name = stem
    while name in sys.modules or name in sys.stdlib_module_names:
        name += "_file"
    return name


def _make_importable(folder: str) -> None:
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _import_failed(place: str, statement: str | None, error: BaseException) -> Refusal:
    command = f"python {shlex.quote(place)}" if statement is None else f"python -c {shlex.quote(statement)}"
    if isinstance(error, SystemExit):
        return Refusal(
            f"{place!r} ended the program while it was imported (sys.exit({error.code!r})); "
            'put what it runs under if __name__ == "__main__"'
        )
    if isinstance(error, SyntaxError):
        where, line, said = error.filename or place, error.lineno, error.msg
    else:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        where, line, said = frame.filename, frame.lineno, str(error)
    said = " ".join(said.split())
    return Refusal(
        f"{place!r} could not be imported: {type(error).__name__}: {said} ({where}, line {line}); "
        f"{command} shows the traceback"
    )


def _look_up(module: ModuleType, place: str, dotted: str) -> object:
    found: object = module
    walked = place
    for part in dotted.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise Refusal(_no_attribute(found, walked, part)) from None
        walked = f"{walked}:{part}" if walked == place else f"{walked}.{part}"
    return found


def _no_attribute(holder: object, walked: str, missing: str) -> str:
    names = [name for name in dir(holder) if not name.startswith("__")]
    close = difflib.get_close_matches(missing, names, n=1)
    if close:
        return f"{walked!r} has no {missing!r}; did you mean {close[0]!r}"
    public = [name for name in names if not name.startswith("_") and callable(getattr(holder, name, None))]
    if public and len(public) <= 8:
        return f"{walked!r} has no {missing!r}; what it has is {', '.join(public)}"
    return f"{walked!r} has no {missing!r}; name one of its functions"


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"
