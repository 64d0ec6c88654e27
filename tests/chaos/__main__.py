"""The way in of `make chaos`."""

from __future__ import annotations

import sys

from tests.chaos.run import main

sys.exit(main())
