"""Searches files with `re` in a process of its own: a pattern that never ends can be killed there.

Run as a script, by path, without site-packages: only the standard library is at hand. Reads one JSON object
from stdin (`pattern`, `base`, `files`, `maxBytes`, `maxWidth`); writes one object for each matching line
(`file` as an index, `line`, `text`) and at the end one of counts, or one with `error`.
"""

import json
import re
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Search and write."""
    task: dict[str, Any] = json.load(sys.stdin)
    out = sys.stdout
    try:
        pattern = re.compile(task["pattern"])
    except (re.error, OverflowError, RecursionError) as error:
        out.write(json.dumps({"error": str(error)}) + "\n")
        return
    width: int = task["maxWidth"]
    counts = {"binary": 0, "tooBig": 0, "unreadable": 0}
    for index, name in enumerate(task["files"]):
        text = _text(Path(task["base"]) / name, task["maxBytes"], counts)
        if text is None:
            continue
        found = False
        for number, line in enumerate(text.split("\n"), 1):
            match = pattern.search(line.removesuffix("\r"))
            if match is not None:
                start = max(0, match.start() - width // 2) if len(line) > width else 0
                shown = line[start : start + width].rstrip("\r")
                out.write(json.dumps({"file": index, "line": number, "text": shown}) + "\n")
                found = True
        if found:
            out.flush()
    out.write(json.dumps(counts) + "\n")


def _text(path: Path, limit: int, counts: dict[str, int]) -> str | None:
    try:
        if path.stat().st_size > limit:
            counts["tooBig"] += 1
            return None
        data = path.read_bytes()
    except OSError:
        counts["unreadable"] += 1
        return None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if b"\0" in data:
        counts["binary"] += 1
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


if __name__ == "__main__":
    main()
