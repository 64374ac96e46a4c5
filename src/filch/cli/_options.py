"""The argument parser that every command is built on: its errors are sentences, and its help keeps its line breaks."""

import argparse
from typing import NoReturn

from filch.cli._refusal import Refusal


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises `Refusal` instead of printing its usage and ending the process."""

    def __init__(self, name: str, description: str, epilog: str) -> None:
        super().__init__(
            prog=name,
            description=description,
            epilog=epilog,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments with argparse's message and the way to the help."""
        message = message.removeprefix("argument ")
        hint = "" if ";" in message else f"; see {self.prog} --help"
        raise Refusal(f"{message}{hint}")
