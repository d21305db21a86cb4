"""`python -m deskmate_server.wire.export [--check]`: write the generated files, or say which are stale."""

import sys

from deskmate_server.wire.export import files


def main(arguments: list[str]) -> int:
    """Exit code: 1 when `--check` finds a stale file, 2 for any other argument."""
    if arguments not in ([], ["--check"]):
        sys.stderr.write("usage: python -m deskmate_server.wire.export [--check]\n")
        return 2
    found = files.stale() if arguments else files.write()
    for path in found:
        sys.stderr.write(f"{'stale' if arguments else 'wrote'} {path}\n")
    return 1 if arguments and found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
