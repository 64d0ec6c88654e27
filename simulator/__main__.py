"""The way in: `python -m simulator`."""

import sys

from simulator.command_line import main

sys.exit(main(sys.argv[1:]))
