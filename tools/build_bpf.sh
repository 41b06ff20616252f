#!/bin/sh
# Compiles the scheduler trace's BPF program: tools/build_bpf.sh [OBJECT]. Needs clang, llvm-strip and libbpf's
# headers; whoever only builds or uses dbdyno does not, as the object is in the tree.
# Beside the object stands the version of the compiler it was made by: bytes are equal only with the same one.
set -eu
export LC_ALL=C
cd "$(dirname "$0")/../crates/dyno-trace/bpf"
object=${1:-sched.bpf.o}
# no paths of this machine in the object; one object for all little-endian machines
clang -O2 -g -Wall -Wextra -Werror -Wno-unused-parameter -target bpfel -mcpu=v3 -D__TARGET_ARCH_x86 \
    -fdebug-compilation-dir=. -ffile-prefix-map="$(pwd)=." -c sched.bpf.c -o "$object"
llvm-strip -g "$object"
clang --version | sed -n '1s/.*clang version \([0-9.]*\).*/clang \1/p' >"$object.compiler"
