"""`deskmate`: the program's entry."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from deskmate_server.cli.main import run  # heavy parts are imported by the commands that need them

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
