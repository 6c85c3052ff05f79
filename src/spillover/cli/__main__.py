"""Runs `python -m spillover.cli`, for machines where the `spill` script is not on the path."""

import sys

from spillover.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
