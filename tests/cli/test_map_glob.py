"""The walk behind --glob: against the standard library's glob, in order, lazily, and past what cannot be read."""

import glob
import itertools
import os
import random
from pathlib import Path

import pytest

from filch.cli._glob import walk

TREE = [
    "a.py",
    "b.txt",
    "a/x.py",
    "a/b/x.py",
    "a/b/c/deep.py",
    "a/.hidden/x.py",
    ".top/x.py",
    ".dot.py",
    "b/a/b/x.py",
    "b[1]/x.py",
    "empty/",
]

PARTS = ["*", "**", "a", "b", "?", "*.py", "[ab]*", "[!a]", "x.py", ".*", "b[[]1]", "empty"]


def no_trouble(error: OSError) -> None:
    """Fail the test: nothing here is unreadable."""
    raise AssertionError(error)


@pytest.fixture
def tree(folder):
    """Make a small tree of files in the current folder."""
    for name in TREE:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("")
    return folder


def in_order(paths):
    """Sort paths as a walk meets them: folder by folder, by the names of their parts."""
    return sorted(paths, key=lambda path: path.split("/"))


@pytest.mark.parametrize("length", [1, 2, 3])
def test_finds_what_the_standard_library_finds(tree, length):
    """A pattern would match other files than everywhere else in Python, in disorder, or some of them twice."""
    patterns = ["/".join(parts) for parts in itertools.product(PARTS, repeat=length)]
    for pattern in random.Random(length).sample(patterns, min(len(patterns), 150)):
        if pattern.endswith("**"):
            continue  # the standard library yields the folder itself there, with a slash; see the next test
        expected = in_order(set(glob.glob(pattern, recursive=True)))
        assert list(walk(pattern, no_trouble)) == expected, pattern


def test_two_stars_at_the_end_are_all_below(tree):
    """`folder/**` would yield the folder itself, or the files of its top only."""
    assert list(walk("a/**", no_trouble)) == ["a/b", "a/b/c", "a/b/c/deep.py", "a/b/x.py", "a/x.py"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("{root}/a/*.py", ["{root}/a/x.py"]),
        ("./a//*.py", ["./a/x.py"]),
        ("a/../b.txt", ["a/../b.txt"]),
        ("a.py", ["a.py"]),
        ("a.py/", []),
        ("a", ["a"]),
        ("*/", ["a", "b", "b[1]", "empty"]),
        ("a.py/*", []),
        ("nowhere/*", []),
        ("**/b/x.py", ["a/b/x.py", "b/a/b/x.py"]),
        ("**/**/deep.py", ["a/b/c/deep.py"]),
        ("~/*/deep.py", ["{root}/a/b/c/deep.py"]),
    ],
)
def test_forms_of_a_pattern(tree, monkeypatch, pattern, found):
    """A form of pattern that people write would find nothing, or change the paths."""
    monkeypatch.setenv("HOME", str(tree / "a" / "b"))
    root = str(tree)
    assert list(walk(pattern.format(root=root), no_trouble)) == [path.format(root=root) for path in found]


def test_root_of_the_file_system(monkeypatch):
    """A pattern right under / would lose its slash and be looked for in the current folder."""
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    found = list(walk("/*", no_trouble))
    assert listed == ["/"]
    assert found == ["/" + name for name in sorted(os.listdir("/")) if not name.startswith(".")]


def test_links_do_not_lead_round_in_a_circle(tree):
    """A link to a folder above would make the walk endless; a link that is named would not be followed."""
    (tree / "a" / "up").symlink_to(tree)
    (tree / "a" / "loop").symlink_to("loop")
    assert list(walk("**/deep.py", no_trouble)) == ["a/b/c/deep.py"]
    assert list(walk("a/up/*.py", no_trouble)) == ["a/up/a.py"]
    assert list(walk("a/u*/*.py", no_trouble)) == ["a/up/a.py"]
    troubles: list[OSError] = []
    assert list(walk("a/l*/*", troubles.append)) == []
    assert list(walk("a/loop/*", troubles.append)) == []
    assert [error.filename for error in troubles] == ["a/loop"]


def test_lists_a_folder_when_it_comes_to_it(tree, monkeypatch):
    """A glob over a large disk would first list all of it, in time and in memory."""
    listed = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(path) or scandir(path))
    paths = walk("**/*.py", no_trouble)
    assert listed == []
    assert next(paths) == "a/b/c/deep.py"
    assert listed == [".", "a", "a/b", "a/b/c"]
    assert list(paths) == ["a/b/x.py", "a/x.py", "a.py", "b/a/b/x.py", "b[1]/x.py"]


def test_folder_that_cannot_be_read_is_told(tree, monkeypatch):
    """A folder without permission would be left out in silence, or end the run."""
    scandir = os.scandir

    def refuse(path):
        if Path(path) == Path("a/b"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    troubles = []
    assert list(walk("**/x.py", troubles.append)) == ["a/x.py", "b/a/b/x.py", "b[1]/x.py"]
    assert [error.filename for error in troubles] == ["a/b"]
