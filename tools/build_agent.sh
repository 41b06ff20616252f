#!/bin/sh
# Builds dbdyno-agent for ARCH (default: this machine's) into python/dbdyno/remote/programs, as static as can be:
# against musl, which needs `rustup target add ARCH-unknown-linux-musl`; else against the C library of this machine, in
# the program; else (libc.a is missing) as a dynamic program, which runs where that C library is, or a newer one.
# For another ARCH the C compiler is zig's (build/wheel, see Makefile). Says what it has made.
set -eu
cd "$(dirname "$0")/.."
arch=${1:-$(uname -m)}
programs=python/dbdyno/remote/programs
musl=$arch-unknown-linux-musl gnu=$arch-unknown-linux-gnu

built() {  # TARGET KIND
	mkdir -p "$programs"
	cp "target/$1/release/dbdyno-agent" "$programs/.new"
	mv "$programs/.new" "$programs/dbdyno-agent-$arch"
	echo "$programs/dbdyno-agent-$arch: $2, $(wc -c < "$programs/dbdyno-agent-$arch") bytes"
}

build() {  # TARGET
	cargo rustc --quiet --locked --release --package dyno-agent --bin dbdyno-agent --target "$1" -- -C strip=symbols
}

has_musl() {
	libs=$(rustc --print target-libdir --target "$musl" 2>/dev/null) || return 1
	ls "$libs"/libstd-*.rlib > /dev/null 2>&1 || rustup --quiet target add "$musl" 2> /dev/null
}

compilers() {  # for the few C files in libraries, and what links
	name=$(echo "$musl" | tr - _)
	upper=$(echo "$name" | tr '[:lower:]' '[:upper:]')
	if [ "$arch" = "$(uname -m)" ]; then
		command -v musl-gcc > /dev/null || export "CC_$name=cc"
	else
		zig=$PWD/build/wheel/bin/python
		# the target as Rust names it, which the caller adds, is none of zig's
		printf '#!/bin/sh\nfor word; do shift; case $word in --target=*) ;; *) set -- "$@" "$word" ;; esac; done\nexec %s -m ziglang cc -target %s-linux-musl "$@"\n' \
			"$zig" "$arch" > build/zig-cc
		printf '#!/bin/sh\nexec %s -m ziglang ar "$@"\n' "$zig" > build/zig-ar
		chmod +x build/zig-cc build/zig-ar
		export "CC_$name=$PWD/build/zig-cc" "AR_$name=$PWD/build/zig-ar"
		export "CARGO_TARGET_${upper}_LINKER=rust-lld"
	fi
}

if has_musl; then
	compilers
	build "$musl"
	built "$musl" "static (musl)"
elif CARGO_ENCODED_RUSTFLAGS="${CARGO_ENCODED_RUSTFLAGS:+$CARGO_ENCODED_RUSTFLAGS$(printf '\037')}-Ctarget-feature=+crt-static" \
	build "$gnu"; then
	built "$gnu" "static (glibc), since there is no $musl"
else
	build "$gnu"
	built "$gnu" "dynamic, since there is neither $musl nor a static C library"
fi
