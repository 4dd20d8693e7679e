"""The tests of the recipes, each as one of these."""

import glob
import os
import sys
import unittest

from larder_double import ROOT

sys.path.insert(0, ROOT)

from larder import _asserting, _runner  # noqa: E402

FOLDER = os.path.join(ROOT, "recipes")


def load_tests(loader: unittest.TestLoader, standard: unittest.TestSuite, pattern: str) -> unittest.TestSuite:
    suite = unittest.TestSuite()
    files = sorted(glob.glob(os.path.join(FOLDER, "test_*.py")))
    assert len(files) >= 10, f"the recipes are not in {FOLDER}"
    for number, path in enumerate(files):
        module = _asserting.run_module(path, f"_recipe_{number}")
        tests = list(_runner.find_tests(module))
        assert tests, f"{path} has no tests"
        for test in tests:
            suite.addTest(unittest.FunctionTestCase(test.run, description=f"{os.path.basename(path)}: {test.name}"))
    return suite


if __name__ == "__main__":
    unittest.main()
