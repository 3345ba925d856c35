"""Check a commit's message, as git's commit-msg hook: `pre-commit install` sets it up.

    python .ci/commit_message.py FILE

A subject of at most 72 characters says in the imperative what the commit does, with a capital letter and
without a full stop; an empty line and the reason follow. Exit codes: 0 it does, 1 it does not.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LONGEST_SUBJECT, LONGEST_LINE = 72, 80

BY_GIT = re.compile(r"(Merge|Revert|fixup!|squash!|amend!) ")
"""How subjects begin that git writes."""

OTHER_FORM = re.compile(r"\w+(ed|ing|[^su]s)\b")
IMPERATIVES = {"Bring", "Embed", "Exceed", "Feed", "Need", "Seed", "Shed", "Speed", "Spring", "String"}
"""Those that end like another form of a verb."""


def faults(message: str) -> list[str]:
    """Return what is wrong with a message, one sentence each."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject, rest = (lines[0] if lines else ""), lines[1:]
    if BY_GIT.match(subject):
        return []
    found = []
    if len(subject) > LONGEST_SUBJECT:
        found.append(f"The subject has {len(subject)} characters; the most are {LONGEST_SUBJECT}.")
    if not subject[:1].isupper() or subject.endswith("."):
        found.append("The subject begins with a capital letter and ends without a full stop.")
    verb = subject.partition(" ")[0]
    if OTHER_FORM.fullmatch(verb) and verb not in IMPERATIVES:
        found.append(f'The subject begins with "{verb}"; say what the commit does in the imperative: "Add".')
    if rest and rest[0].strip():
        found.append("The second line is empty; the reason follows it.")
    long = [line for line in rest if len(line) > LONGEST_LINE and " " in line.strip()]
    if long:
        found.append(f"A line has {len(long[0])} characters; the most are {LONGEST_LINE}: {long[0][:40]}...")
    return found


def main() -> int:
    """Check the file that git passes."""
    found = faults(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.stderr.writelines(f"{fault}\n" for fault in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
