"""The native kernel's place in the build.

FILCH_BUILD unset or `pure`: no extension is built; `native`: build it, or fail.  This version has no native kernel.
"""

import os

from setuptools import setup

wanted = os.environ.get("FILCH_BUILD", "")
if wanted not in ("", "native", "pure"):
    raise SystemExit(f"FILCH_BUILD must be native or pure, or unset, not {wanted!r}")
if wanted == "native":
    raise SystemExit("FILCH_BUILD=native asks for the native kernel, which this version does not have; unset it")
setup()
