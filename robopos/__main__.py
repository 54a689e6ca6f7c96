"""`python -m robopos` is the `robopos` command."""

import sys

from robopos.cli import main

if __name__ == "__main__":
    sys.exit(main())
