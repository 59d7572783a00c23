#!/usr/bin/env bash
# Builds the Python package as its users do, installs it into a fresh virtual environment, and tests it there.
#
#   scripts/python_package.sh [--full | --torch] [PYTEST_ARGUMENT...]
#
# --full tests the operators with all types, sizes and numbers of ranks, which takes hours; parts of it are chosen by
# pytest's -k. --torch installs PyTorch, which takes gigabytes, and tests what the package has for it.
#
# From the source archive, by pip, without anything of this folder: build/python/dist has the archive and the wheel.
# Needs Debian 12 or Ubuntu 24.04, as root or with sudo; installs Python's headers by apt.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh

# Those of the operators run on all processors; the others have limits of time, and run one at a time.
operators=(../../python/tests/ops_test.py)
others=("--ignore=${operators[0]}" ../../python)
extra=()
case ${1:-} in
  '') ;;
  --full) shift; export PYTHON_TESTS_FULL=1; others=() ;;
  --torch) shift; operators=(); others=(../../python/tests/torch_test.py) extra=(torch) ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
require_packages g++ binutils cmake ninja-build libfabric1 python3 python3-dev python3-venv
root=$PWD/build/python
dist=$root/dist
rm -rf "$root"
mkdir -p "$dist"
# Not the cache of the person who tests.
export XDG_CACHE_HOME=$root/cache
export PIP_DISABLE_PIP_VERSION_CHECK=1

say "Python package: source archive and wheel"
python3 -m venv "$root/build"
"$root/build/bin/pip" install --quiet build
log=$root/build.log
quietly "$root/build/bin/python" -m build --sdist --outdir "$dist" python
quietly "$root/build/bin/pip" wheel --no-deps --wheel-dir "$dist" "$dist"/*.tar.gz

python3 -m venv "$root/venv"
"$root/venv/bin/pip" install --quiet "$(echo "$dist"/*.whl)[test]" auditwheel mypy pytest-xdist "${extra[@]}"
cd "$root"  # nothing of the sources is on the path
say "Python package: what the wheel needs"
"$root/venv/bin/auditwheel" show "$dist"/*.whl | tee "$root/auditwheel.log"
if grep -oE 'lib[a-z_+-]+\.so[.0-9]*' "$root/auditwheel.log" | grep -vE '^lib(c|m|dl|rt|pthread|stdc\+\+|gcc_s)\.so'; then
  fail "the wheel needs libraries beyond those of C and C++"
fi
say "Python package: demo, types, tests"
begin=$SECONDS
"$root/venv/bin/python" -m devcomm.demo --ranks 4
seconds=$((SECONDS - begin))
[ "$seconds" -lt 20 ] || fail "the demo took $seconds s"
"$root/venv/bin/mypy" --strict --config-file ../../python/pyproject.toml --cache-dir "$root/mypy" ../../python/examples
run_tests() { "$root/venv/bin/python" -m pytest -q -p no:cacheprovider "$@"; }
[ ${#operators[@]} = 0 ] || run_tests -n "$(nproc)" "${operators[@]}" "$@"
[ ${#others[@]} = 0 ] || run_tests "${others[@]}" "$@"
