"""What the documents show runs, and the stubs name what there is."""
import ast
import doctest
import os
import unittest

import userswap
from userswap import _native, _pool, _show

HERE = os.path.dirname(os.path.abspath(__file__))


def load_tests(_loader, tests, _pattern):
    for module in (userswap, _pool, _show):
        suite = doctest.DocTestSuite(module)
        assert suite.countTestCases() > 0, module
        tests.addTests(suite)
    guide = os.path.join(HERE, "..", "..", "docs", "python.md")
    tests.addTests(doctest.DocFileSuite(guide, module_relative=False, optionflags=doctest.ELLIPSIS))
    return tests


class Stubs(unittest.TestCase):
    def test_name_what_the_native_half_has(self):
        with open(os.path.join(os.path.dirname(userswap.__file__), "_native.pyi")) as file:
            stub = ast.parse(file.read())
        named = {node.name: node for node in stub.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
        self.assertEqual(set(named), {name for name in dir(_native) if not name.startswith("__")})
        for name in ("Engine", "Memory"):
            methods = {node.name for node in named[name].body if isinstance(node, ast.FunctionDef)}
            self.assertEqual(methods - {"__new__"}, {each for each in vars(getattr(_native, name))
                                                     if not each.startswith("__") or each == "__array_interface__"})

    def test_the_package_is_typed(self):
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(userswap.__file__), "py.typed")))


if __name__ == "__main__":
    unittest.main()
