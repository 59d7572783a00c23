#!/usr/bin/env bash
# Builds tests/package/consumer against an installation (find) or the sources (fetch) and, in simulator
# mode, runs it. A GPU consumer is built only. With an installation, the same for the project of that mode
# that docs/package.md shows.
#
#   package_test.sh find|fetch sim|gpu
set -euo pipefail
way=$1
mode=$2
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

rm -rf "$WORK"
mkdir -p "$WORK"
options=(-DCMAKE_BUILD_TYPE=Release "-DCONSUMER_MODE=$mode")
if [ "$way" = find ]; then
  "$CMAKE" --install "$BUILD_DIR" --prefix "$WORK/prefix" >"$WORK/install.log"
  # The installation must stand alone: move it, so that paths into the build folder would break.
  mv "$WORK/prefix" "$WORK/moved"
  if grep -rlF -e "$SOURCE_DIR" -e "$BUILD_DIR" "$WORK/moved" --include='*.cmake'; then
    echo "the files above name folders of the build; they break on another machine" >&2
    exit 1
  fi
  options+=("-DCMAKE_PREFIX_PATH=$WORK/moved")

  # refused <component> <text> [<option>...]: the component is required, and what CMake says then.
  refused() {
    local log=$WORK/refused_$1.log component=$1 text=$2
    shift 2
    if "$CMAKE" -S "$here/consumer" -B "$WORK/refused_$component" -G "$GENERATOR" "${options[@]}" \
      "-DCONSUMER_COMPONENTS=$component" "$@" >"$log" 2>&1; then
      echo "find_package(devcomm REQUIRED COMPONENTS $component) succeeded" >&2
      exit 1
    fi
    tr -s ' \n' ' ' <"$log" | grep -qF -e "$text" || {
      cat "$log" >&2
      exit 1
    }
  }
  refused no_such_part 'devcomm has no component no_such_part; it has devcomm, host_core, host'
else
  # devcomm is compiled again here, so as fast as can be.
  options+=("-DFETCHCONTENT_SOURCE_DIR_DEVCOMM=$SOURCE_DIR" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0
    -DCMAKE_UNITY_BUILD=ON)
fi

"$CMAKE" -S "$here/consumer" -B "$WORK/build" -G "$GENERATOR" "${options[@]}"
targets=(consumer)
[ "$way $mode" != "find sim" ] || targets+=(tested_race)  # of the sources it needs the simulator once more
"$CMAKE" --build "$WORK/build" -j 2 --target "${targets[@]}"
[ "$mode" = gpu ] || "$WORK/build/consumer"
if [ "$way $mode" = "find sim" ]; then
  "${CMAKE%cmake}ctest" --test-dir "$WORK/build" --output-on-failure --no-tests=error -R tested
fi

[ "$way" = find ] || exit 0
block=$([ "$mode" = sim ] && echo 1 || echo 2)
mkdir "$WORK/documented"
awk -v wanted="$block" '/^# Package/ { here = 1 } here && /^```$/ { inside = 0 } inside && block == wanted { print }
  here && /^```cmake$/ { inside = 1; ++block }' "$SOURCE_DIR/docs/package.md" >"$WORK/documented/CMakeLists.txt"
cp "$here/consumer/consumer.cu" "$WORK/documented/all_reduce.cu"
"$CMAKE" -S "$WORK/documented" -B "$WORK/documented/build" -G "$GENERATOR" "-DCMAKE_PREFIX_PATH=$WORK/moved"
"$CMAKE" --build "$WORK/documented/build" -j 2
if [ "$mode" = sim ]; then
  "$WORK/documented/build/all_reduce"
fi
