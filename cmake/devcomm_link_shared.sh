#!/bin/sh
# devcomm_link_shared.sh <linker command>
#
# Runs the link command of a program with simulated kernels. `extern __shared__ T name[]` compiles to
# an undefined thread-local symbol in each file; every such symbol that no object, archive or library defines becomes an
# alias of one thread-local array of 227 KiB, the most dynamic shared memory that a block may have.
set -eu

bytes=232448
output=
previous=
objects=
for word in "$@"; do
  if [ "$previous" = "-o" ]; then output=$word; fi
  previous=$word
  case $word in *.o | *.a | *.so) if [ -f "$word" ]; then objects="$objects $word"; fi ;; esac
done
if [ -z "$output" ] || [ -z "$objects" ]; then exec "$@"; fi

# Columns of readelf: number, value, size, type, binding, visibility, section, name.
# shellcheck disable=SC2086
symbols=$(readelf -sW $objects | awk '
  $4 == "TLS" && $7 == "UND" && ($5 == "GLOBAL" || $5 == "WEAK") { wanted[$8] = 1 }
  $4 == "TLS" && $7 != "UND" && $5 != "LOCAL" { defined[$8] = 1 }
  END { for (name in wanted) if (!(name in defined) && name !~ /^_ZN?K?S/ && name !~ /@/) print name }' | sort)
if [ -z "$symbols" ]; then exec "$@"; fi

source=$output.shared_memory.c
object=$output.shared_memory.o
{
  echo "static __thread char devcomm_dynamic_shared[$bytes] __attribute__((aligned(1024), used));"
  echo "static char* start(void) { return devcomm_dynamic_shared; }"
  echo "struct description { char* (*start)(void); unsigned long bytes; };"
  echo "extern const struct description devcomm_simulator_dynamic_shared;"
  echo "const struct description devcomm_simulator_dynamic_shared = {start, $bytes};"
  for symbol in $symbols; do
    printf '__asm__(".globl %s\\n.type %s, %%tls_object\\n.set %s, devcomm_dynamic_shared");\n' \
      "$symbol" "$symbol" "$symbol"
    # Its initialization on first use is nothing. In templates, GCC calls it without asking whether it is there.
    case $symbol in
      _Z*) echo "void _ZTH${symbol#_Z}(void) {}" ;;
      *) echo "void _ZTH${#symbol}$symbol(void) {}" ;;
    esac
  done
} > "$source"
"$1" -x c -O1 -fPIC -c "$source" -o "$object"
exec "$@" "$object"
