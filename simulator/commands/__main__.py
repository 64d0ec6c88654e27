"""The way in: `python -m simulator.commands simulate|plan|replay`."""

import sys

from simulator.commands.command_line import main

sys.exit(main(sys.argv[1:]))
