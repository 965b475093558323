"""`python -m headwork` is `headwork`."""

import os
import sys

# Python looks in the folder it is started in first, where a student's json.py may lie; the command `headwork` does not.
if sys.path[:1] == [os.getcwd()]:  # noqa: PTH109  # pathlib would be looked for there as well
    del sys.path[0]

from headwork.cli import main

sys.exit(main())
