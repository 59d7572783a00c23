#!/usr/bin/env bash
# Does what docs/tutorial_find_a_race.md says, with the files that stand there and a fresh installation: what
# fails must fail with the reports that are shown, what passes must pass.
set -euo pipefail
page=$SOURCE_DIR/docs/tutorial_find_a_race.md
failed=0
complain() {
  echo "$*" >&2
  failed=1
}
block() { # LANGUAGE NUMBER; the number-th block of that language
  awk -v open="^\`\`\`$1\$" -v wanted="$2" '/^```/ && inside { inside = 0; next } inside == 2 { print; next }
    /^```/ { inside = 1; if ($0 ~ open && ++count == wanted) inside = 2 }' "$page"
}
# Without what differs from run to run and from folder to folder.
plainly() {
  sed -E 's/\(0x[0-9a-f]+\)//; s/(rank|block|thread|byte|ranks) [0-9]+/\1 N/g; s#(/[^ ]+)*/(all_reduce\.cu|build)#\2#; s/ +[0-9.]+ sec//; s/ +$//'
}
# Every line of the page's block must be there.
shown() { # NUMBER OUTPUT
  local line
  while IFS= read -r line; do
    [ -z "$line" ] || plainly <"$2" | grep -qF -- "$line" || complain "the tutorial shows what does not come: $line"
  done < <(block '' "$1" | plainly)
}

rm -rf "$WORK"
mkdir -p "$WORK/find_a_race"
"$CMAKE" --install "$BUILD_DIR" --prefix "$WORK/installed" >"$WORK/install.log"
cd "$WORK/find_a_race"
block cpp 1 >all_reduce.cu
block cmake 1 >CMakeLists.txt
"$CMAKE" -S . -B build -G "$GENERATOR" "-DCMAKE_PREFIX_PATH=$WORK/installed"
"$CMAKE" --build build -j 2
ctest=${CMAKE%cmake}ctest
if "$ctest" --test-dir build >"$WORK/first.out"; then complain "the kernel with the race passes"; fi
shown 1 "$WORK/first.out"
if "$ctest" --test-dir build -R race.ranks2 --output-on-failure >"$WORK/report.out"; then complain "no race on 2 ranks"; fi
cat "$WORK/report.out"
shown 2 "$WORK/report.out"

# The lines that the text speaks of.
for line in "16 numbers.local()[i] = sum;" "21 sum += numbers.lsa(peer)[i];"; do
  [[ "$(sed -n "${line%% *}p" all_reduce.cu)" == *"${line#* }"* ]] || complain "line ${line%% *} is not '${line#* }'"
  grep -q "ine ${line%% *}" "$page" || complain "the tutorial does not speak of line ${line%% *}"
done

wrong=$(block diff 1 | sed -n 's/^-//p')
right=$(block diff 1 | sed -n 's/^+//p')
[ "$(grep -cxF -- "$wrong" all_reduce.cu)" = 1 ] || complain "the fix replaces another number of lines than 1"
awk -v wrong="$wrong" -v right="$right" '$0 == wrong { print right; next } { print }' all_reduce.cu >mended.cu
mv mended.cu all_reduce.cu
"$CMAKE" --build build -j 2
"$ctest" --test-dir build >"$WORK/second.out" || complain "the mended kernel fails"
shown 3 "$WORK/second.out"
DEVCOMM_TEST_SEEDS=100 "$ctest" --test-dir build -R race.ranks2 -V >"$WORK/search.out" || complain "fails with more seeds"
shown 4 "$WORK/search.out"

# The exercise.
sed -i '/^  barrier\.sync();/d' all_reduce.cu
"$CMAKE" --build build -j 2
"$ctest" --test-dir build -L plain >"$WORK/exercise_plain.out" || complain "the exercise's plain tests fail"
if "$ctest" --test-dir build -R race.ranks3 --output-on-failure >"$WORK/exercise.out"; then complain "the exercise passes"; fi
grep -q 'data race' "$WORK/exercise.out" || complain "the exercise has no race"
exit "$failed"
