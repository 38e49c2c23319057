"""Characters in names of users that command whatever shows them, and what is shown in their place."""

import os
import re
from typing import Any

# What would move the cursor, change colours or turn the text around: shown as a picture of itself.
PICTURES = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"} | {127: "␡"}
PICTURES |= dict.fromkeys((*range(0x80, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A)), "\ufffd")
COMMAND = re.compile(f"[{''.join(map(chr, PICTURES))}]")
# XML 1.0 has no place for them, escaped or not.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def visible(text: str) -> str:
    """With pictures of what commands a terminal; line breaks and tabs stay.

    Examples
    --------
    >>> visible("a\\x1b[31mb")
    'a␛[31mb'
    """
    return text.translate(PICTURES) if COMMAND.search(text) else text


def in_one_line(text: str) -> str:
    """The same where a line break would begin a line that nobody said.

    Examples
    --------
    >>> in_one_line("a\\nError: b")
    'a␊Error: b'
    """
    return visible(text).replace("\n", "␊")


def in_job_of_github() -> bool:
    """Whether what is printed is read by the runner of GitHub Actions."""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def no_commands(text: str) -> str:
    """Text that looks the same, and in which the runner of GitHub Actions finds nothing to do.

    It obeys lines that begin with two colons, and two hashes before a bracket anywhere (`ActionCommand.cs` of
    actions/runner).
    """
    return text.replace("::", "\u2236:").replace("##[", "\u266f#[")


def drawable(part: Any) -> Any:
    """Plain data whose texts an XML reader, as of drawings, takes."""
    if isinstance(part, str):
        return NOT_XML.sub("\ufffd", visible(part))
    if isinstance(part, dict):
        return {key: drawable(value) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [drawable(item) for item in part]
    return part
