"""The version of filch, in the one place that the build and `filch --version` read it from."""

__version__ = "0.1.0"
