#!/usr/bin/env bash
# Builds the documentation as a site: the guides by mkdocs-material, the C++ API by doxygen, Python's by mkdocstrings. Fails
# where a link or an anchor leads nowhere.
#
#   scripts/docs_site.sh [FOLDER]     build/site by default
#
# Needs Debian 12 or Ubuntu 24.04, as root or with sudo; installs doxygen by apt, and mkdocs-material and
# mkdocstrings by pip into build/tools.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
. scripts/lib/setup.sh

[ $# -le 1 ] || fail "give one folder: scripts/docs_site.sh FOLDER"
case ${1:-} in -*) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;; esac
site=${1:-build/site}
tools=build/tools/mkdocs
require_packages doxygen git python3 python3-venv
if ! $tools/bin/python -c 'import mkdocstrings' 2>/dev/null; then
  say "installing by pip into $tools: mkdocs-material, mkdocstrings"
  python3 -m venv $tools
  $tools/bin/pip install --quiet --disable-pip-version-check 'mkdocs-material>=9.5,<10' 'mkdocs>=1.6,<2' \
    'mkdocstrings-python>=1.16,<3' 'mkdocstrings>=0.28,<2'
fi
rm -rf build/doxygen
mkdir -p build/doxygen
doxygen scripts/site/Doxyfile
log=build/docs_site.log
rm -f $log
# Not --quiet, by which warnings do not count as errors.
NO_MKDOCS_2_WARNING=1 quietly $tools/bin/mkdocs build --strict --site-dir "$(realpath -m "$site")"
say "the site is in $site"
