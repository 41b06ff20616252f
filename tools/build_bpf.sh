#!/bin/sh
# Compiles the BPF programs: tools/build_bpf.sh [DIRECTORY]. Needs clang, llvm-strip and libbpf's headers; whoever
# only builds or uses dbdyno does not, as the objects are in the tree.
# Beside each object stands the version of the compiler it was made by: bytes are equal only with the same one.
set -eu
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
for source in dyno-trace/bpf/sched dyno-profile/bpf/label; do
    cd "$root/crates/${source%/*}"
    name=${source##*/}.bpf
    object=${1:-.}/$name.o
    # no paths of this machine in the object; one object for all little-endian machines
    clang -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -target bpfel -mcpu=v3 -D__TARGET_ARCH_x86 \
        -fdebug-compilation-dir=. -ffile-prefix-map="$(pwd)=." -c "$name.c" -o "$object"
    llvm-strip -g "$object"
    clang --version | sed -n '1s/.*clang version \([0-9.]*\).*/clang \1/p' >"$object.compiler"
done
