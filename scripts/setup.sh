#!/usr/bin/env bash
# Makes .venv and installs into it: `setup.sh run` what the program needs, `setup.sh dev` what its tests need too.
# The Makefile calls it when pyproject.toml or constraints.txt changed. PYTHON names the interpreter to use.
set -euo pipefail
cd "$(dirname "$0")/.."

what=${1:-dev}
case $what in
run) target=. ;;
dev) target='.[dev]' ;;
*)
    echo "usage: scripts/setup.sh [run|dev]" >&2
    exit 2
    ;;
esac

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    if [ -n "${PYTHON:-}" ]; then
        command -v "$PYTHON" >/dev/null || { echo "setup: PYTHON=$PYTHON is no command" >&2; return 1; }
        new_enough "$PYTHON" && { echo "$PYTHON"; return; }
        echo "setup: PYTHON=$PYTHON is $("$PYTHON" --version 2>&1); Deskmate needs Python 3.11 or newer" >&2
        return 1
    fi
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if command -v "$name" >/dev/null && new_enough "$name"; then
            echo "$name"
            return
        fi
    done
    echo "setup: Deskmate needs Python 3.11 or newer; python3 here is $(python3 --version 2>&1 || echo missing)." >&2
    echo "setup: install a newer one, or name it: make setup PYTHON=/path/to/python3.11" >&2
    return 1
}

# The marker stands while anything is being written: found here, it tells that the last run was cut, and a half
# installed package can't be told from a whole one, so the venv is made anew.
marker=.venv/.unfinished
if [ -e "$marker" ] || ! new_enough .venv/bin/python || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
    python=$(find_python)
    echo "setup: making .venv with $("$python" --version)"
    rm -rf .venv
    mkdir .venv
    touch "$marker"
    "$python" -m venv .venv
fi
touch "$marker"
rm -f .venv/.run .venv/.dev
echo "setup: installing $([ "$what" = dev ] && echo 'Deskmate and what its tests need' || echo Deskmate)"
# pip names locations of this machine that it skips; only what stops it matters.
.venv/bin/python -m pip install --quiet --quiet --disable-pip-version-check -c constraints.txt -e "$target"
rm "$marker"
touch .venv/.run
[ "$what" = run ] || touch .venv/.dev
