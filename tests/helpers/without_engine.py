"""A plugin of pytest that hides the engine's libraries: `pytest -p tests.helpers.without_engine tests/fleet`."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder

HIDDEN = ("torch", "transformers", "tokenizers", "zmq")


class Hidden(MetaPathFinder):
    """Finds none of the hidden packages."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> None:
        """Refuse a hidden package; leave any other to the finders behind."""
        if name.partition(".")[0] in HIDDEN:
            raise ModuleNotFoundError(f"No module named {name!r}: it is hidden", name=name)


sys.meta_path.insert(0, Hidden())
