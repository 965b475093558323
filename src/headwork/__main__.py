"""`python -m headwork` is `headwork`."""

import sys

from headwork.cli import main

sys.exit(main())
