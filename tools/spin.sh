#!/usr/bin/env bash
# Get the model checker spin, unless it is there already.
#
#     tools/spin.sh
#
# The last line on stdout is the folder that spin lies in, for PATH.  If it is not on PATH, it is fetched with apt, which
# needs no rights for that, and unpacked into ${FILCH_SPIN_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/filch/spin}, where it stays.
set -euo pipefail

if command -v spin >/dev/null; then
    dirname "$(command -v spin)"
    exit
fi
home=${FILCH_SPIN_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/filch/spin}
if [ ! -x "$home/usr/bin/spin" ]; then
    if ! command -v apt-get dpkg >/dev/null; then
        echo "spin.sh: spin is not installed, and there is no apt to fetch it with" >&2
        exit 1
    fi
    work=$(mktemp -d)
    trap 'rm -rf -- "$work"' EXIT
    cd "$work"
    if ! apt-get -q download spin >&2; then # the lists may be old, or missing
        [ "$(id -u)" -ne 0 ] || apt-get -q update >&2
        apt-get -q download spin >&2
    fi
    cd - >/dev/null
    mkdir "$work/unpacked"
    dpkg -x "$work"/spin_*.deb "$work/unpacked"
    "$work/unpacked/usr/bin/spin" -V >&2
    mkdir -p "$(dirname "$home")"
    rm -rf -- "$home"
    mv "$work/unpacked" "$home"
fi
echo "$home/usr/bin"
