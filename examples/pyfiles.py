"""Measure Python source files: lines, functions, classes, and how deep their blocks are nested.

`measure` is made for `filch map`:

    filch map examples/pyfiles.py:measure --glob 'src/**/*.py'

Run as a program, this file measures files and folders (without any, the standard library's own `asyncio`) on a pool
and prints a table of the most deeply nested:

    python examples/pyfiles.py src
"""

import ast
import asyncio
import sys
import tokenize
import warnings
from collections.abc import Iterator
from pathlib import Path

# What the parser warns of (an invalid escape, say) is not what is measured here.  The filter is bound to this name and
# set once: `warnings.catch_warnings` changes the whole process and must not be used where other threads run.
SOURCE = "<measured source>"
warnings.filterwarnings("ignore", module=SOURCE)

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
BLOCKS = (
    *FUNCTIONS,
    ast.ClassDef,
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)


def measure(path: str) -> dict[str, int]:
    """Return the number of lines, functions and classes of the file, and of blocks inside one another at its deepest.

    The encoding is the one that the file declares.  A file that is not Python raises what the parser raises.
    """
    with tokenize.open(path) as file:
        source = file.read()
    try:
        tree = ast.parse(source, SOURCE)
    except SyntaxError as error:
        error.filename = path
        raise
    functions = classes = deepest = 0
    for statement, depth in statements(tree):
        functions += isinstance(statement, FUNCTIONS)
        classes += isinstance(statement, ast.ClassDef)
        deepest = max(deepest, depth)
    return {"lines": len(source.splitlines()), "functions": functions, "classes": classes, "nesting": deepest}


def statements(tree: ast.Module) -> Iterator[tuple[ast.stmt, int]]:
    """Yield every statement with the number of blocks it is part of, itself included."""
    waiting: list[tuple[ast.stmt, int]] = [(statement, 0) for statement in tree.body]
    while waiting:
        statement, around = waiting.pop()
        depth = around + isinstance(statement, BLOCKS)
        yield statement, depth
        for block in blocks(statement):
            waiting.extend((inner, around if is_elif(statement, block) else depth) for inner in block)


def is_elif(statement: ast.stmt, block: list[ast.stmt]) -> bool:
    """Tell whether `block` is an `elif` of `statement`: an `if` in its `else`, in the same column, and no deeper."""
    if not (isinstance(statement, ast.If) and block is statement.orelse and len(block) == 1):
        return False
    return isinstance(block[0], ast.If) and block[0].col_offset == statement.col_offset


def blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements that `statement` holds."""
    for part in (statement, *getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        for field in ("body", "orelse", "finalbody"):
            if block := getattr(part, field, None):
                yield block


def main(paths: list[str]) -> int:
    """Print a table of the files, and of the Python files in the folders, that are most deeply nested."""
    import filch

    files: list[str] = []
    for path in map(Path, paths or [asyncio.__path__[0]]):
        files.extend(map(str, sorted(path.rglob("*.py")))) if path.is_dir() else files.append(str(path))
    rows: list[tuple[str, dict[str, int]]] = []
    failed = 0
    with filch.Pool() as pool:
        for file, future in [(file, pool.submit(measure, file)) for file in files]:
            try:
                rows.append((file, future.result()))
            except (OSError, SyntaxError, UnicodeDecodeError) as error:
                print(f"{file}: {error}", file=sys.stderr)
                failed += 1
    rows.sort(key=lambda row: row[1]["nesting"], reverse=True)
    columns = ("lines", "functions", "classes", "nesting")
    print(*(f"{column:>9}" for column in columns), " file")
    for file, found in rows[:10]:
        print(*(f"{found[column]:>9,}" for column in columns), "", file)
    total = {column: sum(found[column] for _, found in rows) for column in columns[:3]}
    print(*(f"{total[column]:>9,}" for column in total), f"{'':>9}  all {len(rows)} files")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
