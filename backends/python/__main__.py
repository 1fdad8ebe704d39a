"""`python -m mks`: the command `mks`."""

import sys

from mks.dsl.commands.cli import main

sys.exit(main())
