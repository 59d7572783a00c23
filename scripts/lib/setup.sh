# shellcheck shell=bash
# Sourced by the scripts: installs missing Debian and Ubuntu packages and finds CUDA.
#
#   require_packages NAME...   installs by apt what is missing, says what, and does nothing otherwise
#   optional_package NAME WHAT installs one package, or says that WHAT is left out without it
#   oldest_and_newest NAME MIN   the oldest package NAME-VERSION from version MIN on, and the newest, a line each
#   require_disassembler       sets PATH so that nvdisasm and cuobjdump are found: those of the toolkit, or pip's
#   require_cutlass            has CUTLASS's headers where CMake looks for them
#   python_with_matplotlib     a python3 that has it; non-zero where there is none
#   use_ccache                 has ccache, where it is installed, keep what is compiled
#   find_cuda                  sets cuda_root (empty when there is no toolkit) and gpu_count
#   quietly COMMAND...         its output goes to the file $log, and is shown where it fails
#   say TEXT, fail TEXT        a line of progress; an error with what to do, and exit 1

say() { printf -- '-- %s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

quietly() { # COMMAND...
  # shellcheck disable=SC2154 # the script that sources this sets it
  "$@" >>"$log" 2>&1 || {
    cat "$log" >&2
    fail "this failed, see above: $*"
  }
}

is_installed() {
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

os_id() { . /etc/os-release && printf '%s-%s' "${ID:-unknown}" "${VERSION_ID:-}"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Another apt may hold the lock (an image's first boot, an editor's updater): wait up to 5 minutes.
apt_get() {
  local attempt log
  log=$(mktemp)
  for attempt in $(seq 1 30); do
    if as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 "$@" >"$log" 2>&1; then
      rm -f "$log"
      return 0
    fi
    grep -q 'Could not get lock\|Unable to lock' "$log" || break
    [ "$attempt" = 1 ] && say "another apt is running; waiting for it"
    sleep 10
  done
  cat "$log" >&2
  rm -f "$log"
  return 1
}

# Debian 12 has Catch2 2 and CMake 3.25; newer ones come from the backports of the mirror in use.
add_debian_backports() {
  # shellcheck disable=SC2016 # apt's own placeholders
  if apt-get indextargets --format '$(RELEASE)' 'Created-By: Packages' | grep -x bookworm-backports >/dev/null; then
    return
  fi
  local mirror
  # shellcheck disable=SC2016
  mirror=$(apt-get indextargets --format '$(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "bookworm" && !found { print $2; found = 1 }')
  mirror=${mirror:-http://deb.debian.org/debian}
  say "adding Debian's bookworm-backports ($mirror) as /etc/apt/sources.list.d/devcomm-backports.list"
  as_root sh -c "echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm-backports main' \
    > /etc/apt/sources.list.d/devcomm-backports.list"
}

require_packages() {
  local package
  local from_backports=() plain=()
  missing=()
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  # A hand-installed CMake of the right age serves as well as the package.
  if [[ " ${missing[*]} " == *" cmake "* ]] && cmake_is_new_enough; then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | grep -vx cmake)
  fi
  if [ ${#missing[@]} = 0 ]; then
    return
  fi
  command -v apt-get >/dev/null ||
    fail "this is neither Debian nor Ubuntu; install these yourself, then run again: ${missing[*]}"

  if [ "$(id -u)" != 0 ]; then
    # Asks for the password, if one is needed, where the user sees it.
    { command -v sudo >/dev/null && sudo -v; } ||
      fail "installing packages needs root: run this as root or with sudo, or install by hand: ${missing[*]}"
  fi
  say "installing by apt: ${missing[*]}"
  if [ "$(os_id)" = debian-12 ]; then
    for package in "${missing[@]}"; do
      case $package in
        cmake | libcatch2-dev) from_backports+=("$package") ;;
        *) plain+=("$package") ;;
      esac
    done
    [ ${#from_backports[@]} = 0 ] || add_debian_backports
  else
    plain=("${missing[@]}")
  fi
  apt_get update || say "apt-get update failed; going on with the package lists that are here"
  if [ ${#plain[@]} != 0 ]; then
    apt_get install --no-install-recommends "${plain[@]}" ||
      fail "apt could not install ${plain[*]}; see its messages above, then run again"
  fi
  if [ ${#from_backports[@]} != 0 ]; then
    apt_get install --no-install-recommends -t bookworm-backports "${from_backports[@]}" ||
      fail "apt could not install ${from_backports[*]} from bookworm-backports; see its messages above, then run again"
  fi
}

optional_package() {
  if is_installed "$1"; then return; fi
  if apt-cache show "$1" >/dev/null 2>&1; then
    require_packages "$1"
  else
    say "no package $1 here: $2 left out"
  fi
}

oldest_and_newest() { # NAME MIN
  apt-cache pkgnames "$1-" | sed -n "s/^$1-\([0-9][0-9]*\)$/\1/p" | sort -n |
    while read -r version; do
      if [ "$version" -ge "$2" ] && [ -n "$(apt-cache madison "$1-$version")" ]; then echo "$1-$version"; fi
    done | sed -n '1p;$p' | uniq
}

# NVIDIA's packages of the Python index bring the programs; nothing is installed outside build/tools.
require_disassembler() {
  local tools=$PWD/build/tools/disassembler
  PATH=$PATH:$cuda_root/bin
  if has_disassembler "$tools"; then return; fi
  python3 -m pip --version >/dev/null 2>&1 || require_packages python3-pip
  say "installing by pip into build/tools/disassembler: nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump"
  python3 -m pip install --quiet --disable-pip-version-check --target "$tools" \
    nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump && has_disassembler "$tools" ||
    say "pip could not install them: the tests that compare machine code will fail"
}
has_disassembler() { # TOOLS
  local folder
  for folder in "$1"/nvidia/*/bin; do PATH=$PATH:$folder; done
  command -v nvdisasm >/dev/null && command -v cuobjdump >/dev/null
}

require_cutlass() {
  local tools=$PWD/build/tools/cutlass
  [ -e "$tools/cutlass_library/source/include/cutlass/cutlass.h" ] && return
  python3 -m pip --version >/dev/null 2>&1 || require_packages python3-pip
  say "installing by pip into build/tools/cutlass: nvidia-cutlass 4.2.0.0"
  python3 -m pip install --quiet --disable-pip-version-check --no-deps --target "$tools" nvidia-cutlass==4.2.0.0 ||
    say "pip could not install it: tests of devcomm/gemm/cutlass are left out"
}

# apt's matplotlib is that of /usr/bin/python3, which need not come first on PATH.
python_with_matplotlib() {
  local python
  for python in python3 /usr/bin/python3; do
    if "$python" -c 'import matplotlib' >/dev/null 2>&1; then echo "$python" && return; fi
  done
  return 1
}

# By the sources' paths within the checkout, so that another clone of it finds them too.
use_ccache() {
  command -v ccache >/dev/null || return 0
  export CMAKE_C_COMPILER_LAUNCHER=${CMAKE_C_COMPILER_LAUNCHER-ccache}
  export CMAKE_CXX_COMPILER_LAUNCHER=${CMAKE_CXX_COMPILER_LAUNCHER-ccache}
  export CMAKE_CUDA_COMPILER_LAUNCHER=${CMAKE_CUDA_COMPILER_LAUNCHER-ccache}
  export CCACHE_BASEDIR=${CCACHE_BASEDIR-$PWD} CCACHE_NOHASHDIR=${CCACHE_NOHASHDIR-1}
}

cmake_is_new_enough() {
  command -v cmake >/dev/null || return 1
  local version
  version=$(cmake --version | awk 'NR == 1 { print $3 }')
  [ "$(printf '%s\n' 3.25 "$version" | sort -V | head -n 1)" = 3.25 ]
}

# DEVCOMM_CUDA=0 hides the toolkit; CUDA_HOME names one that is not in the usual places.
find_cuda() {
  cuda_root=
  gpu_count=0
  if [ "${DEVCOMM_CUDA:-1}" = 0 ]; then
    say "DEVCOMM_CUDA=0: simulator only; GPU parts are left out"
    return
  fi
  local nvcc
  for nvcc in "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" "$(command -v nvcc || true)" /usr/local/cuda/bin/nvcc; do
    if [ -n "$nvcc" ] && [ -x "$nvcc" ]; then
      cuda_root=$(dirname "$(dirname "$(readlink -f "$nvcc")")")
      break
    fi
  done
  if [ -z "$cuda_root" ]; then
    say "no CUDA toolkit found (nvcc on PATH, CUDA_HOME, /usr/local/cuda): simulator only; GPU parts are left out"
    return
  fi
  gpu_count=$( (compgen -G '/dev/nvidia[0-9]*' || true) | wc -l)
  if [ "$gpu_count" = 0 ]; then
    say "CUDA toolkit in $cuda_root, no GPU: kernels are compiled and not run"
  else
    say "CUDA toolkit in $cuda_root, $gpu_count GPUs"
  fi
}
