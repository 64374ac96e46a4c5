"""What `python -m filch` runs: the same command line as the script `filch`."""

import sys

from filch.cli import main

if __name__ == "__main__":
    sys.exit(main())
