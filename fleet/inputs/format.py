"""One version number of all files: runs, profiles and scenarios."""

from typing import Annotated, Any

from msgspec import Meta

from fleet.errors import InputError

FORMAT = 2  # one more with each change after which a file of before means something else, or nothing

Version = Annotated[int, Meta(ge=FORMAT, le=FORMAT)]


def check_format(content: Any, origin: str, remedy: str, unmarked: int = FORMAT) -> None:
    """Refuse content that another version of specfleet has written.

    Args:
        content: Content of a file as read from TOML or JSON; its key `version` counts where it is a whole number.
        origin: What the error names.
        remedy: What the user should do.
        unmarked: Format of content without that key.

    Raises:
        InputError: The content is of another format.
    """
    version = content.get("version", unmarked) if isinstance(content, dict) else unmarked
    if isinstance(version, int) and version != FORMAT:
        raise InputError(f"{origin}: written by specfleet format {version}, this is {FORMAT}: {remedy}")
