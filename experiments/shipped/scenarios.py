"""Where the scenarios are that come with the project."""

from importlib import resources
from pathlib import Path


def shipped_scenarios() -> dict[str, Path]:
    """List the scenarios that come with the project, by name.

    >>> list(shipped_scenarios())[-2:]
    ['star', 'tree']
    """
    folder = Path(str(resources.files("experiments"))) / "scenarios"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}
