#!/usr/bin/env bash
# The whole way once: a small BIDS dataset becomes its serving copy, and a window of it is read.
#
#   scripts/quickstart.sh
#
# Leaves .venv, .quickstart/nm099999 (the dataset) and serving/nm099999/zarr (its copy). Safe to
# run again: the dataset is made anew, and the copy brought up to date.
set -euo pipefail
cd "$(dirname "$0")/.."

step() {
    printf '\n$ %s\n' "$*"
    "$@"
}

scripts/environment.sh view
export PATH="$PWD/.venv/bin:$PATH"

rm -rf .quickstart
step python scripts/fixture_repository.py .quickstart
step nemar-convert .quickstart/nm099999 --dest serving
step python scripts/look.py serving/nm099999/zarr
