"""Every error message that the tests provoke, each once, as one list to read: `make messages`.

`conftest` notes them where UQEVAL_MESSAGES names a file; numbers and temporary paths are alike here.
"""

import json
import re
import sys
from pathlib import Path

_ALIKE = (
    (re.compile(r"\S*/pytest-[^\s'\"]*/([^/\s'\"]+)"), r"\1"),
    (re.compile(r"0x[0-9a-f]+"), "0x…"),
    (re.compile(r"(?<![\w.])-?\d[\d,]*(\.\d+)?(e-?\d+)?(?![\w])"), "#"),
)


def distinct(lines: list[str]) -> list[str]:
    """One message of each kind, sorted."""
    found: dict[str, str] = {}
    for line in lines:
        text = _ALIKE[0][0].sub(_ALIKE[0][1], json.loads(line))
        kind = text
        for pattern, same in _ALIKE[1:]:
            kind = pattern.sub(same, kind)
        found.setdefault(kind, text)
    return sorted(found.values(), key=str.casefold)


def note(error: BaseException, path: str) -> None:
    """Adds a message to the file."""
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(str(error)) + "\n")


if __name__ == "__main__":
    print("\n".join(distinct(Path(sys.argv[1]).read_text(encoding="utf-8").splitlines())))
