"""``python -m dpbook``: the command line."""

import sys

from dpbook.desk.command import main

sys.exit(main())
