"""What is seen on standard error while a run goes on: rich's bar, a plain line without rich, or nothing."""

import io
import json
import os
import pty
import re
import sys
import threading

import pytest

from filch.cli import _progress
from filch.cli._progress import NoProgress, start_progress
from filch.cli._records import Outcome
from filch.cli._summary import Tally


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self):
        """Say so."""
        return True


@pytest.fixture
def on_terminal(monkeypatch):
    """Return a function that makes standard error a terminal, which no redrawing comes too early for."""

    def on_terminal():
        stream = Terminal()
        monkeypatch.setattr(sys, "stderr", stream)
        monkeypatch.setattr(_progress, "REDRAW_SECONDS", 0)
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("COLUMNS", "100")
        return stream

    return on_terminal


@pytest.fixture
def rich():
    """Skip where rich is not installed; it is optional."""
    return pytest.importorskip("rich")


@pytest.fixture
def without_rich(monkeypatch):
    """Be where rich is not installed."""
    for name in [name for name in sys.modules if name == "rich" or name.startswith("rich.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)


def tally(ok=0, failed=0, skipped=0):
    """Make a count."""
    made = Tally()
    for _ in range(ok):
        made.add('"x"', Outcome("1", None, 0.5, 1))
    for _ in range(failed):
        made.add('"x"', Outcome("{}", "ValueError", 0.25, 1))
    made.skipped = skipped
    return made


@pytest.mark.usefixtures("rich")
def test_bar_shows_done_failed_rate_and_time_left(on_terminal):
    """The bar would lack what a user looks at it for."""
    terminal = on_terminal()
    progress = start_progress(None)
    assert progress.counts
    progress.update(tally(ok=5, failed=3, skipped=2), 50)
    progress.update(tally(ok=20, failed=4, skipped=2), 50)
    progress._bar.refresh()
    shown = terminal.getvalue()
    progress.close()
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r", "\n").splitlines()[-1]
    assert re.match(r" *24 done +4 failed .*[\d,.]+/s +\d+:\d\d:\d\d +left +[\d:-]+", last)
    assert "━" in last


@pytest.mark.usefixtures("rich")
def test_bar_goes_away(on_terminal):
    """The bar would stay between the records and the summary, or leave the cursor hidden."""
    terminal = on_terminal()
    progress = start_progress(None)
    progress.update(tally(ok=5), 50)
    progress.close()
    assert terminal.getvalue().count("\x1b[?25h") == terminal.getvalue().count("\x1b[?25l") == 1
    assert terminal.getvalue().endswith("\x1b[2K")


@pytest.mark.usefixtures("rich")
def test_what_functions_print_does_not_break_the_bar(on_terminal):
    """Prints would land in the middle of the bar."""
    terminal = on_terminal()
    progress = start_progress(None)
    print("printed", file=sys.stderr)
    progress.close()
    assert sys.stderr is terminal
    assert re.search(r"(^|\n|\x1b\[2K)printed\n", terminal.getvalue())


def test_plain_line_without_rich(on_terminal, without_rich):
    """Without the optional rich, filch map would crash, or show nothing on a terminal."""
    terminal = on_terminal()
    progress = start_progress(None)
    progress.update(tally(ok=12345, failed=1, skipped=5), None)
    progress.update(tally(ok=2, failed=1, skipped=5), 50)
    lines = terminal.getvalue().split("\r")
    assert lines[0] == ""
    assert re.fullmatch(r"filch map: 12346 done, 1 failed, [\d,.]+/s", lines[1])
    assert re.fullmatch(r"filch map: 3 of 45 done, 1 failed, [\d,.]+/s *", lines[2])
    progress.close()
    assert re.search(r"\r +\r$", terminal.getvalue())


def test_progress_in_a_log_file(monkeypatch, capsys):
    """`--progress` with standard error in a file would write nothing, a bar of control characters, or a line a call."""
    assert isinstance(start_progress(None), NoProgress)
    progress = start_progress(True)
    for _ in range(1000):
        progress.update(tally(ok=1), None)
    progress.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert re.fullmatch(r"filch map: 1 done, 0 failed, [\d,.]+/s", lines[0])


def test_no_progress(on_terminal):
    """`--no-progress` would not switch the bar off."""
    terminal = on_terminal()
    progress = start_progress(False)
    progress.update(tally(ok=1), 2)
    progress.close()
    assert not progress.counts
    assert terminal.getvalue() == ""


def in_terminal(start, *arguments, **streams):
    """Run `filch map` with standard error on a terminal; return its exit code and what the terminal shows."""
    ours, theirs = pty.openpty()
    streams = {
        "stderr": theirs,
        **{name: theirs if stream == "terminal" else stream for name, stream in streams.items()},
    }
    process = start("map", *arguments, **streams)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # Linux's way to say that the other side is closed
        pass
    os.close(ours)
    return process.wait(30), shown.decode(), process


@pytest.fixture
def _work(folder):
    """Put a function into the current folder that waits until the bar must have been drawn."""
    (folder / "work.py").write_text(
        "import sys, threading\n"
        "def slow(text):\n    threading.Event().wait(0.3)\n    print('printed', text)\n    return text\n"
    )


@pytest.mark.usefixtures("_work", "rich")
@pytest.mark.slow
def test_on_a_real_terminal(start, folder):
    """All parts would work, and the whole show no bar, or break the records or the summary."""
    code, shown, process = in_terminal(start, "work:slow", "a", "b", "c", "--workers", 1)
    assert code == 0
    assert [json.loads(line)["result"] for line in process.stdout] == ["a", "b", "c"]
    assert "━" in shown
    assert "0 failed" in shown
    assert re.search(r"(^|\n|\x1b\[2K)printed a\r\n", shown)
    assert "filch map: 3 ok, 0 failed; " in shown


@pytest.mark.usefixtures("_work")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "streams"),
    [(["--no-progress"], {}), ([], {"stdout": "terminal"})],
)
def test_terminal_without_a_bar(start, options, streams):
    """A bar would be drawn against the user's wish, or into records that go to the same terminal."""
    code, shown, _ = in_terminal(start, "work:slow", "a", "b", "--workers", 1, *options, **streams)
    assert code == 0
    assert "━" not in shown
    assert "filch map: 2 ok, 0 failed; " in shown


def test_count_in_the_background(run, monkeypatch):
    """The bar would not know the end of a run over a glob, or the run wait for the count."""
    totals = []
    known = threading.Event()

    class Watching(NoProgress):
        counts = True

        def update(self, tally, total):
            totals.append(total)
            if total is not None:
                known.set()

    monkeypatch.setattr("filch.cli._map.start_progress", lambda wanted: Watching())
    monkeypatch.setattr("builtins.hold", lambda text: known.wait(0.001) and None, raising=False)
    ran = run("map", "builtins:hold", *range(300), "--glob", "/*")
    assert ran.code == 0
    assert known.is_set()
    assert totals[-1] == len(ran.records) > 300
