"""Plan, simulate and measure distributed speculative decoding of large language models: the Python API.

    import specfleet

    result = specfleet.simulate("star", {"verifiers.count": 8}, seed=3)
    result.metrics["throughput"].value, result.frame(), result.figure("timeline")

    specfleet.sweep("star", {"verifiers.count": range(1, 9)}).figure()

A scenario is a file (TOML), the name of a shipped one, or a `Scenario`; changes are values by dotted key, or keywords.
`api.py` has the functions that take scenarios and results, `results.py` what they return; the others live in the rooms
that do the work. The command line (`cli/`) parses, calls these functions and prints. Names are imported when they are
used: `import specfleet` alone imports no library. `__init__.pyi` lists them.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORTS = map(str.split, Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8").splitlines())
_HOME_OF = {words[3]: words[1] for words in _IMPORTS if words[:1] == ["from"]}  # from HOME import NAME as NAME
__all__ = ["__version__", *sorted(_HOME_OF)]  # noqa: PLE0604  (texts, which ruff cannot see)


def __getattr__(name: str) -> Any:
    """Import a public name on its first use."""
    if name == "__version__":
        value = import_module("importlib.metadata").version("specfleet")
    elif name in _HOME_OF:
        value = getattr(import_module(_HOME_OF[name]), name)
    else:
        raise AttributeError(f"module 'specfleet' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
