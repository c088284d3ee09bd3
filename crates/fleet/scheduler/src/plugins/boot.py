"""Runs a module of the package `ringway` from the sources that came with the program."""

import importlib
import importlib.abc
import importlib.util
import sys


class Sources(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    def __init__(self, files):
        self.files = files

    def path(self, name):
        path = name.replace(".", "/")
        return next((it for it in (path + ".py", path + "/__init__.py") if it in self.files), None)

    def is_package(self, name):
        return self.path(name).endswith("/__init__.py")

    def find_spec(self, name, path=None, target=None):
        found = self.path(name)
        return found and importlib.util.spec_from_loader(name, self, origin="ringway:" + found)

    def get_source(self, name):
        return self.files[self.path(name)]

    def get_code(self, name):
        return compile(self.get_source(name), "ringway:" + self.path(name), "exec", dont_inherit=True)


# `given` is what the program hands over.
sys.meta_path.insert(0, Sources(given["sources"]))  # noqa: F821
sys.exit(importlib.import_module(given["module"]).main(sys.argv[1:], **given["beside"]))  # noqa: F821
