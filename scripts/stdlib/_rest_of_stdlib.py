"""Loads the rest of the standard library, which is a separate file, when a module of it is first imported.

Two modules that every start of Pyodide imports, but hardly any program uses, have short replacements, which become the
whole module when one of its other names is first used.
"""

import sys
import zipimport

from _rest_names import NAMES

FILE = "/lib/python_rest.zip"


class Rest:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in NAMES:
            return None
        try:
            open(FILE).close()
        except FileNotFoundError:
            from pyruntime_host import rest_of_stdlib

            try:
                data = rest_of_stdlib().to_bytes()
            except Exception as error:
                raise ImportError(f"{name} is in a file that cannot be loaded: {error}") from error
            with open(FILE, "wb") as file:
                file.write(data)
        folder = name.rpartition(".")[0].replace(".", "/")
        return zipimport.zipimporter(f"{FILE}/{folder}".rstrip("/")).find_spec(name)


def become_whole(name):
    """Turn the short module of this name into the whole one from the rest. If that cannot be loaded, the module stays
    unchanged."""
    module = sys.modules[name]
    spec = Rest.find_spec(name)
    short = dict(vars(module))
    del module.__getattr__
    module.__spec__, module.__package__ = spec, spec.parent
    module.__loader__, module.__file__ = spec.loader, spec.origin
    if spec.submodule_search_locations:
        module.__path__ = spec.submodule_search_locations
    try:
        spec.loader.exec_module(module)
    except BaseException:
        vars(module).clear()
        vars(module).update(short)
        raise


sys.meta_path.append(Rest)
