"""Runs every test and ends with a line as cargo's, which `scripts/test.sh` counts."""

import os
import sys
import unittest


def main() -> int:
    here = os.path.dirname(os.path.abspath(__file__))
    suite = unittest.defaultTestLoader.discover(here, top_level_dir=os.path.dirname(here))
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    broken = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    verdict = "ok" if result.wasSuccessful() else "FAILED"
    print(f"test result: {verdict}. {result.testsRun - broken} passed; {broken} failed")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
