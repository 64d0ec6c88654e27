"""The way in: `python -m simulator.experiments [NAME ...]`."""

import sys

from simulator.experiments.command_line import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
