"""x"""

import argparse

ABOUT = "x"


def add_options(parser: argparse.ArgumentParser) -> None:
    pass
