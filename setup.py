"""The native kernel's place in the build.

FILCH_BUILD unset: the native kernel is built where that can be; where it fails, the build says so and goes on with the
pure kernel, and the reason is put beside the kernel, where `filch --version` finds it.  `native`: it is built, or the
build fails.  `pure`: it is not built.

Only CPython has a native kernel, and Windows has none.  CC and CFLAGS are heeded; warnings become errors with
CFLAGS=-Werror.
"""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.errors import BaseError, CCompilerError

ROOT = Path(__file__).resolve().parent
PACKAGE = "filch._kernel"
NAME = f"{PACKAGE}._native"
WHY = "not_built.txt"  # beside the kernel: why there is no native one
FLAGS = ["-std=c11", "-O2", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread"]


def found(*patterns: str) -> list[str]:
    """Return files as setuptools wants them: relative, and always in the same order."""
    return sorted(path.relative_to(ROOT).as_posix() for pattern in patterns for path in ROOT.glob(pattern))


def chosen() -> str:
    """Return what FILCH_BUILD asks for: "native", "pure", or "" for the native kernel if it can be built."""
    wanted = os.environ.get("FILCH_BUILD", "")
    if wanted not in ("", "native", "pure"):
        raise SystemExit(f"FILCH_BUILD must be native or pure, or unset, not {wanted!r}")
    if not found("native/python/*.c"):
        reason = "this version does not have"
    elif sys.implementation.name != "cpython":
        reason = "only CPython has"
    elif sys.platform == "win32":
        reason = "Windows does not have"
    else:
        return wanted
    if wanted == "native":
        raise SystemExit(f"FILCH_BUILD=native asks for the native kernel, which {reason}; unset it")
    return "pure"


def forget(folder: Path) -> None:
    """Remove what an earlier build has left: a binary that is there is a binary that is used."""
    for path in [*folder.glob("_native.*.so"), folder / "_native.so", folder / WHY]:
        path.unlink(missing_ok=True)


class BuildPython(build_py):
    """Leaves no binary of an earlier build where the pure kernel was asked for."""

    def run(self) -> None:
        super().run()
        if WANTED == "pure":
            forget(Path(self.get_package_dir(PACKAGE)) if self.editable_mode else folder_in(self.build_lib))


class BuildNative(build_ext):
    """Builds the extension; falls back to the pure kernel, unless FILCH_BUILD forbids it."""

    def run(self) -> None:
        folder = folder_in(self.build_lib)
        if self.inplace or self.editable_mode:
            folder = Path(self.get_finalized_command("build_py").get_package_dir(PACKAGE))
        for old in {folder, folder_in(self.build_lib)}:
            forget(old)
        try:
            self.look_for_header()
            super().run()
        except (BaseError, CCompilerError, OSError) as error:
            reason = short(error)
            if WANTED == "native":
                raise SystemExit(
                    f"FILCH_BUILD=native asks for the native kernel, which could not be built: {reason}"
                ) from error
            self.extensions = []  # nobody is to look for what was not built
            fall_back(folder, reason)

    def look_for_header(self) -> None:
        """Say what is missing in words, instead of in those of the compiler."""
        folders = [sysconfig.get_path("include"), sysconfig.get_path("platinclude"), *(self.include_dirs or [])]
        if not any(Path(folder, "Python.h").exists() for folder in folders):
            raise OSError("Python.h was not found; it comes with python3-dev or python3-devel")


def short(error: BaseException) -> str:
    """Return a reason in one line: setuptools may quote a whole command line with all flags."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, subprocess.CalledProcessError):
            return f"command '{cause.cmd[0]}' failed with exit status {cause.returncode}"
        cause = cause.__cause__ or cause.__context__
    return " ".join(str(error).split()) or type(error).__name__


def fall_back(folder: Path, reason: str) -> None:
    """Say that there is no native kernel: now, and in `filch --version`, for pip hides what is printed."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WHY).write_text(reason + "\n", encoding="utf-8")
    line = "*" * 100
    sys.stderr.write(
        f"\n{line}\n"
        "WARNING: filch's native kernel was NOT built; the pure one takes its place, and is many times slower.\n"
        f"The reason: {reason}\n"
        "FILCH_BUILD=native makes this an error; FILCH_BUILD=pure asks for the pure kernel.\n"
        f"{line}\n\n"
    )


def folder_in(library: str) -> Path:
    return Path(library, *PACKAGE.split("."))


def extension() -> Extension:
    return Extension(
        NAME,
        found("native/core/*.c", "native/python/*.c"),
        include_dirs=["native/core", "native/python"],
        depends=found("native/core/*.h", "native/python/*.h", "setup.py"),
        extra_compile_args=FLAGS,
        extra_link_args=["-pthread"],
    )


WANTED = chosen()
setup(
    cmdclass={"build_ext": BuildNative, "build_py": BuildPython},
    ext_modules=[] if WANTED == "pure" else [extension()],
)
