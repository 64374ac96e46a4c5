"""Shows what was measured: a table for people, JSON for programs, and on what it was measured."""

import os
import platform
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from .contenders import CONTENDERS, GO
from .measuring import Figures, Result

NAME_WIDTH = 20
EXECUTOR = "executor / it"


def surroundings() -> dict[str, Any]:
    """Return what a figure has to be quoted with, besides who took part."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cpus": os.cpu_count(),
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "gil": bool(getattr(sys, "_is_gil_enabled", lambda: True)()),
        "free_threaded_build": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        "commit": commit(Path(__file__).parents[1]),
    }


def processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


def commit(folder: Path) -> str | None:
    """Return the commit that is checked out, with a plus when files differ from it, or None where there is no git."""
    try:
        head = git(folder, "rev-parse", "--short=12", "HEAD")
        return head + ("+" if git(folder, "status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def as_json(result: Result) -> dict[str, Any]:
    scenario = result.scenario
    return {
        "what": scenario.what,
        "unit": scenario.unit,
        "operation": scenario.operation,
        "size": result.size,
        "contenders": {
            name: {
                "median": figures.median,
                "min": figures.minimum,
                "p90": figures.p90,
                "samples": figures.samples,
                "times_faster_than_executor": figures.faster_than_executor,
                "times_the_cost_of_a_call": figures.cost_of_call,
                "times_the_cost_of_go": figures.cost_of_go,
            }
            for name, figures in result.figures.items()
        },
        "left_out": result.left_out,
    }


def header(settings: dict[str, Any]) -> str:
    """Return the lines above the tables."""
    lock = "GIL" if settings["gil"] else "free-threaded"
    versions = [
        text for name, text in settings["versions"].items() if CONTENDERS[name].module or CONTENDERS[name].program
    ]
    taking_part = ", ".join([f"{settings['python']} ({lock})", *versions])
    return (
        f"{settings['processor']}, {settings['cpus']} CPUs, {settings['system']}, load {settings['load_before']}\n"
        f"{taking_part}\n"
        f"commit {settings['commit'] or 'unknown'}, "
        f"{settings['workers']} workers, at most {settings['repeat']} rounds, scale {settings['scale']:g}"
    )


def table(result: Result) -> str:
    """Return the table of one scenario."""
    scenario = result.scenario
    counted = {"ns": f"time a {scenario.operation}", "B": f"bytes a {scenario.operation}", "%": "CPU of one core"}
    with_go = GO in result.figures
    lines = [
        f"{scenario.name}: {scenario.what}",
        f"  {counted[scenario.unit]:{NAME_WIDTH}}{'median':>10}{'min':>10}{'p90':>10}{EXECUTOR:>21}{'cost/call':>12}"
        + (f"{'cost/go':>12}" if with_go else ""),
    ]
    lines += [
        row(name, figures, scenario.unit) + (f"{times(figures.cost_of_go):>12}" if with_go else "")
        for name, figures in result.figures.items()
    ]
    lines += [f"  {name:{NAME_WIDTH}}left out: {reason}" for name, reason in result.left_out.items()]
    return "\n".join(lines)


def row(name: str, figures: Figures, unit: str) -> str:
    numbers = "".join(f"{amount(value, unit):>10}" for value in (figures.median, figures.minimum, figures.p90))
    return f"  {name:{NAME_WIDTH}}{numbers}{times(figures.faster_than_executor):>21}{times(figures.cost_of_call):>12}"


def amount(value: float, unit: str) -> str:
    """Return a figure with three digits that count, and the unit of its size."""
    if unit == "%":
        return f"{value:.3f} %"
    if unit == "B":
        return f"{value:.0f} B"
    for limit, name in ((1e3, "ns"), (1e6, "us"), (1e9, "ms")):
        if value < limit * 0.9995:
            return f"{three_digits(value / limit * 1e3)} {name}"
    return f"{three_digits(value / 1e9)} s"


def times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{three_digits(ratio)} x"


def three_digits(value: float) -> str:
    decimals = 0 if value >= 99.95 else 1 if value >= 9.995 else 2
    return f"{value:.{decimals}f}"
