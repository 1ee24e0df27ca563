"""`python -m plait` is the command `plait`."""

import sys

from plait.cli import main

sys.exit(main())
