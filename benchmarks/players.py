"""The processes in which the contenders take their turns, one for each.  A program is compiled first."""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from .contenders import CONTENDERS

ROOT = Path(__file__).parents[1]
PROGRAMS = Path(__file__).parent / "programs"


class Missing(Exception):
    """A contender cannot take part; the message says why."""


class Player:
    """One contender's process.  Between its turns it waits for the next line, and costs nothing."""

    def __init__(self, contender: str, folder: Path) -> None:
        """Start it; what has to be compiled goes into the folder.  Raise Missing if it cannot take part."""
        program = CONTENDERS[contender].program
        command = compiled(program, folder) if program else [sys.executable, "-m", "benchmarks.turns", contender]
        environment = {**os.environ, **CONTENDERS[contender].environment}
        self._contender = contender
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            word, _, self.description = self._answer().partition(" ")
            if word != "ready":
                raise Missing(self.description)
        except BaseException:
            self.close()
            raise

    def turn(self, scenario: str, size: int, workers: int) -> float:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{scenario} {size} {workers}\n")
        self._process.stdin.flush()
        return float(self._answer())

    def close(self) -> None:
        self._process.__exit__(None, None, None)  # closes its input, which ends it, and waits

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of {self._contender} must answer; it ended with {self._process.wait()}")
        return line.strip()


def compiled(source: str, folder: Path) -> Sequence[str]:
    """Compile a program and return the command that runs it."""
    path = PROGRAMS / source
    if path.suffix == ".go":
        tools, target = ["go"], folder / path.stem
        build, run = ["go", "build", "-o", str(target), str(path)], [str(target)]
    else:
        tools = ["javac", "java"]
        build, run = ["javac", "-d", str(folder), str(path)], ["java", "-cp", str(folder), path.stem]
    for tool in tools:
        if shutil.which(tool) is None:
            raise Missing(f"{tool} is not installed")
    subprocess.run(build, check=True, stdout=sys.stderr)
    return run


class Players:
    """The contenders that take part, started when they are first asked for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._players: dict[str, Player | Missing] = {}

    def __enter__(self) -> "Players":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for player in self._players.values():
            if isinstance(player, Player):
                player.close()

    def missing(self, contender: str) -> str | None:
        """Return why a contender cannot take part here, or None."""
        if contender not in self._players:
            try:
                self._players[contender] = Player(contender, self._folder)
            except Missing as reason:
                self._players[contender] = reason
        player = self._players[contender]
        return str(player) if isinstance(player, Missing) else None

    def turn(self, contender: str, scenario: str, size: int, workers: int) -> float:
        player = self._players[contender]
        assert isinstance(player, Player), contender
        return player.turn(scenario, size, workers)

    def descriptions(self) -> dict[str, str]:
        """Return what each contender that was started is."""
        return {name: player.description for name, player in self._players.items() if isinstance(player, Player)}
