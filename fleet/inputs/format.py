"""One version number of all files: runs, profiles and scenarios."""

from typing import Annotated, Any

from msgspec import Meta

from specfleet.fleet.errors import InputError

FORMAT = 2  # rises with each change that gives an older file another meaning, or none

Version = Annotated[int, Meta(ge=FORMAT, le=FORMAT)]


def check_format(content: Any, origin: str, remedy: str, unmarked: int = FORMAT) -> None:
    """Raise InputError for content of a file that another version of specfleet wrote, by its key `version`.

    - `origin`: the file's name in the error. `remedy`: what the user should do.
    - `unmarked`: format of content without that key.
    """
    version = content.get("version", unmarked) if isinstance(content, dict) else unmarked
    if isinstance(version, int) and version != FORMAT:
        raise InputError(f"{origin}: written by specfleet format {version}, this is {FORMAT}: {remedy}")
