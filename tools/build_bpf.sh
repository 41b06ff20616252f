#!/bin/sh
# Compiles the BPF programs: tools/build_bpf.sh [DIRECTORY]. Needs clang, llvm-strip and libbpf's headers; whoever
# only builds or uses dbdyno does not, as the objects are in the tree.
# Beside each object stands the version of the compiler it was made by: bytes are equal only with the same one.
set -eu
export LC_ALL=C
root=$(cd "$(dirname "$0")/.." && pwd)
directory=${1:-.}

# compile SOURCE OBJECT [OPTION...]: no paths of this machine in the object; one object for little-endian machines
compile() {
    cd "$root/crates/${1%/*}"
    source=${1##*/}.bpf.c
    object=$directory/$2.bpf.o
    shift 2
    clang -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -target bpfel -mcpu=v3 -D__TARGET_ARCH_x86 "$@" \
        -fdebug-compilation-dir=. -ffile-prefix-map="$(pwd)=." -c "$source" -o "$object"
    llvm-strip -g "$object"
    clang --version | sed -n '1s/.*clang version \([0-9.]*\).*/clang \1/p' >"$object.compiler"
}

compile dyno-trace/bpf/sched sched
compile dyno-trace/bpf/sched sched-weakly-ordered -DWEAKLY_ORDERED
compile dyno-profile/bpf/label label
