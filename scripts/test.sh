#!/usr/bin/env bash
# Runs the tests in .venv, which is made when it is missing; arguments go to pytest.
#
#   scripts/test.sh                     all tests, on two processes
#   scripts/test.sh tests/readers -x    some of them, until the first failure
#   scripts/test.sh -m 'not slow'       without the long ones
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/environment.sh test
export PATH="$PWD/.venv/bin:$PATH" # git-annex is installed there
[ $# -gt 0 ] || set -- -n 2 --dist worksteal
exec pytest "$@"
