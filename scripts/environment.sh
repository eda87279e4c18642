#!/usr/bin/env bash
# Makes .venv in the checkout and installs the project in it, editable, with the pinned
# dependencies; does nothing where that was done for the same dependencies and compiled code.
#
#   scripts/environment.sh EXTRA        EXTRA is view or test, see pyproject.toml
#
# For the tests, and where there is npm, zarrita too, a reader in JavaScript.
#
# Needs python3 >= 3.11 with its venv module; PYTHON=python3.12 chooses another one.
set -euo pipefail
cd "$(dirname "$0")/.."

extra=${1:?usage: scripts/environment.sh view|test}
python=${PYTHON:-python3}

fail() { echo "scripts/environment.sh: $*" >&2; exit 1; }

compiled=(converter/recording/passes.c scripts/compile_passes.py)
new_enough='import sys; sys.exit(sys.version_info < (3, 11))'
if ! .venv/bin/python -c "$new_enough" 2>/dev/null; then
    command -v "$python" >/dev/null ||
        fail "no $python found, Python 3.11 or newer expected; name one with PYTHON=..."
    "$python" -c "$new_enough" ||
        fail "$("$python" --version) found, 3.11 or newer expected; name one with PYTHON=..."
    "$python" -m venv --clear .venv ||
        fail "$python cannot make a virtual environment (Debian: apt-get install python3-venv)"
fi

wanted="$(pwd) $(cat pyproject.toml constraints.txt "${compiled[@]}" | git hash-object --stdin)"
stamp=.venv/installed-$extra
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || [ ! -e converter/recording/libpasses.so ]; then
    echo "Installing into .venv (a minute or two) ..." >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check \
        --constraint constraints.txt --editable ".[$extra]"
    echo "$wanted" > "$stamp"
fi

zarrita=0.7.5
if [ "$extra" = test ] && command -v npm >/dev/null &&
    ! grep -qs "\"version\": \"$zarrita\"" .venv/zarrita/node_modules/zarrita/package.json; then
    npm install --silent --no-save --no-package-lock --prefix .venv/zarrita "zarrita@$zarrita" ||
        echo "zarrita cannot be installed; the test that reads with it is skipped" >&2
fi
