import sys

from tests.roundtrip.runner import main

sys.exit(main())
