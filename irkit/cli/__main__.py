import sys

from irkit.cli import main

sys.exit(main())
