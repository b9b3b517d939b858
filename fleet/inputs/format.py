"""One version number of all files: runs, profiles and scenarios."""

from typing import Annotated, Any

from msgspec import Meta

from specfleet.fleet.errors import InputError

FORMAT = 2  # rises with each change that gives an older file another meaning, or none

Version = Annotated[int, Meta(ge=FORMAT, le=FORMAT)]


def check_format(content: Any, origin: str, remedy: str, unmarked: int = FORMAT) -> None:
    """Refuse content that another version of specfleet wrote.

    Args:
        content: Content of a file as read from TOML or JSON; its key `version` counts if it is a whole number.
        origin: The file's name in the error.
        remedy: What the user should do.
        unmarked: Format of content without that key.

    Raises:
        InputError: The content has another format.
    """
    version = content.get("version", unmarked) if isinstance(content, dict) else unmarked
    if isinstance(version, int) and version != FORMAT:
        raise InputError(f"{origin}: written by specfleet format {version}, this is {FORMAT}: {remedy}")
