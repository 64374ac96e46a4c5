"""One glob pattern walked lazily and in order: what `--glob` yields.

The standard library's `glob` is lazy or sorted, not both, and may yield a path twice for two `**`.  Here a folder is
listed when the walk comes to it, sorted, and left again, so memory is bound by the largest folders on one path down.
The pattern is a small automaton: a set of positions goes down with the walk, so each path is looked at once.
"""

import fnmatch
import os
import re
from collections.abc import Callable, Iterator

DEEP = "**"
"""The part of a pattern that stands for any number of folders, none included."""

_MAGIC = re.compile(r"[*?[]")
_SEPARATORS = re.compile(r"[\\/]" if os.name == "nt" else "/")

_Positions = frozenset[int]
_Step = tuple[str, bool, _Positions]


def walk(pattern: str, unreadable: Callable[[OSError], None]) -> Iterator[str]:
    """Yield the paths that match `pattern`, folder by folder in the order of their names.

    Wild cards are those of the shell: `*`, `?`, `[…]` within a name, `**` for any number of folders.  A leading dot
    must be written out, a `/` at the end asks for folders only, `~` is the home folder, and `**` does not follow links
    to folders.  A folder that cannot be read is passed to `unreadable` and left out.
    """
    root, parts, folders_only = _split(os.path.expanduser(pattern))
    if not parts:
        if os.path.isdir(root) if folders_only else os.path.lexists(root):
            yield root
        return
    walker = _Walker(parts, folders_only, unreadable)
    stack = [walker.steps(root, walker.reach(0))]
    while stack:
        for path, matches, below in stack[-1]:
            if matches:
                yield path
            if below:
                stack.append(walker.steps(path, below))
                break
        else:
            stack.pop()


def _split(pattern: str) -> tuple[str, list[str], bool]:
    """Return the folder that holds no wild card, the parts that do, and whether only folders are asked for."""
    first, *rest = _SEPARATORS.split(pattern)
    folders_only = bool(rest) and rest[-1] == ""
    parts = [first, *filter(None, rest)]
    literal = 0
    while literal < len(parts) and not _MAGIC.search(parts[literal]):
        literal += 1
    root = os.sep.join(parts[:literal])
    if parts[0] == "" and literal == 1:
        root = os.sep
    wild = parts[literal:]
    if wild and wild[-1] == DEEP:
        wild.append("*")
    return root, wild, folders_only


class _Walker:
    """The automaton of one pattern.  A position is the index of the part that a name must match next."""

    def __init__(self, parts: list[str], folders_only: bool, unreadable: Callable[[OSError], None]) -> None:
        self._parts = parts
        self._tests = [re.compile(fnmatch.translate(os.path.normcase(part))).match for part in parts]
        self._folders_only = folders_only
        self._unreadable = unreadable

    def reach(self, position: int) -> _Positions:
        """Return `position` and those after it that are reached without a name, because `**` may stand for none."""
        reached = {position}
        while self._parts[position] == DEEP:
            position += 1
            reached.add(position)
        return frozenset(reached)

    def steps(self, folder: str, positions: _Positions) -> Iterator[_Step]:
        """Yield the path of each entry of `folder` that counts, whether it matches, and what to look for below it."""
        try:
            with os.scandir(folder or os.curdir) as entries:
                listed = sorted(entries, key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            self._unreadable(error)
            return
        for entry in listed:
            matches, below = self._advance(entry, positions)
            if below and not _is_folder(entry):
                below = frozenset()
            if matches and self._folders_only:
                matches = _is_folder(entry)
            if matches or below:
                yield os.path.join(folder, entry.name), matches, below

    def _advance(self, entry: os.DirEntry[str], positions: _Positions) -> tuple[bool, _Positions]:
        name = os.path.normcase(entry.name)
        hidden = name.startswith(".")
        matches = False
        below: set[int] = set()
        for position in positions:
            part = self._parts[position]
            if hidden and not part.startswith("."):
                continue
            if part == DEEP:
                if entry.is_dir(follow_symlinks=False):
                    below |= self.reach(position)
            elif self._tests[position](name):
                if position + 1 == len(self._parts):
                    matches = True
                else:
                    below |= self.reach(position + 1)
        return matches, frozenset(below)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle, or through a folder that may not be entered
        return False
