#!/usr/bin/env bash
# Makes the packages of a release in target/dist-packages (DIST): scripts/dist.sh [x86-64] [arm64]
#
# For each architecture (both by default): packages for Debian and for rpm, a static archive, an OCI image, packages of
# the C library, and the debug symbols. For all: the installer, the bill of materials (CycloneDX), a manifest page and
# the checksums. The program is static (musl), so each form runs on any Linux.
#
# The same commit gives the same bytes on machines with the same compilers.
# PROFILE=guest compiles faster, for trials of the packages.
# Requires Debian or Ubuntu (apt, dpkg), rustup and Python 3.11; for the other architecture also its gcc.
# scripts/dist-try.sh installs and uses each package in a root of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/dist-tools.sh

profile=${PROFILE:-dist}
export CARGO_TARGET_DIR=$target_dir
dist=${DIST:-$target_dir/dist-packages}
[ $# -gt 0 ] || set -- x86-64 arm64
version=$(workspace_version)
SOURCE_DATE_EPOCH=$(source_date)
export SOURCE_DATE_EPOCH
# Modes of files do not depend on the user who builds.
umask 022

for architecture in "$@"; do
    if ! name_architecture "$architecture"; then
        echo "usage: $0 [x86-64] [arm64]" >&2
        exit 2
    fi
done
need dpkg-deb dpkg
need apt-get apt
need objcopy binutils
need rustup rustup
need python3 python3

# Sets `cpu`, `debian` and `prefix` (of its binutils and gcc) for an architecture.
select_architecture() { # ARCHITECTURE
    name_architecture "$1"
    prefix=
    if [ "$cpu" != "$(uname -m)" ]; then
        prefix=$cpu-linux-gnu-
        need "${prefix}gcc" "gcc-${prefix//_/-}"
    fi
}

# Unpacks Debian's musl headers. SQLite is C and needs them; Rust brings the library. The lists of packages are separate,
# so the build neither reads nor changes those of the host. The folder is kept: its name is part of the compiler's flags.
musl_headers() { # DEBIAN-ARCHITECTURE
    local folder=$target_dir/musl/$1
    [ ! -e "$folder/complete" ] || return 0
    rm -rf "$folder"
    mkdir -p "$folder/lists/partial" "$folder/cache/archives/partial"
    : >"$folder/status"
    local options=(-qq -o "APT::Architecture=$1" -o "APT::Architectures::=$1" -o "Dir::State::Lists=$folder/lists"
        -o "Dir::State::status=$folder/status" -o "Dir::Cache=$folder/cache" -o Debug::NoLocking=1
        -o APT::Sandbox::User=root)
    apt-get "${options[@]}" update
    (cd "$folder" && apt-get "${options[@]}" download musl-dev && dpkg-deb -x musl-dev_*.deb .)
    rm -rf "$folder/lists" "$folder/cache"
    touch "$folder/complete"
}

compile() { # TARGET PACKAGE [CFLAGS…]
    local target=$1 package=$2 variable=${1//-/_} names c=("${@:3}")
    add_target "$target"
    cargo fetch --locked --quiet
    mapfile -t names < <(fixed_names)
    c+=("${names[@]/#/-ffile-prefix-map=}")
    (
        # Linker and flags apply to this target alone.
        export "CC_$variable=${prefix}gcc" "AR_$variable=${prefix}ar" "CFLAGS_$variable=${c[*]}"
        export "CARGO_TARGET_${variable^^}_LINKER=${prefix}gcc"
        CARGO_ENCODED_RUSTFLAGS=$(rust_flags "${names[@]}")
        export CARGO_ENCODED_RUSTFLAGS
        cargo build --quiet --locked --profile "$profile" --package "$package" --target "$target"
    )
}

compile_program() {
    local gcc=${prefix}gcc flags
    musl_headers "$debian"
    # The compiler's own headers and musl's, and no others. Rust's musl lacks the functions that gcc would call in glibc
    # (fortified ones) and in libgcc (atomics out of line).
    flags=(-nostdinc -isystem "$(echo "$target_dir/musl/$debian"/usr/include/*-linux-musl)"
        -isystem "$("$gcc" -print-file-name=include)" -U_FORTIFY_SOURCE)
    [ "$cpu" != aarch64 ] || flags+=(-mno-outline-atomics)
    # For the library that `run --sqlite` loads into programs with glibc. The program is built without it otherwise.
    add_target "$cpu-unknown-linux-gnu"
    compile "$cpu-unknown-linux-musl" hugeleaf-cli "${flags[@]}"
}

# The program without symbols, and the symbols in a file that debuggers find by the link.
split_symbols() { # FILE STRIPPED
    local debug=$stage/symbols/${2##*/}.debug
    mkdir -p "$stage/symbols"
    "${prefix}objcopy" --only-keep-debug --compress-debug-sections "$1" "$debug"
    "${prefix}strip" --strip-all -o "$2" "$1"
    "${prefix}objcopy" --add-gnu-debuglink="$debug" "$2"
}

# Prints our licences, and those of each crate that is compiled in, with the place of its source.
copyright() { # PACKAGE TARGET
    echo "hugeleaf is Copyright (c) the hugeleaf developers, under MIT or Apache 2.0, at your choice."
    echo "It contains these libraries. Each has its own licence and the place of its source:"
    echo
    cargo tree --locked --package "$1" --edges normal,no-proc-macro --target "$2" --prefix none --format '{p} ({l}) {r}' |
        sed 's/ (\*)$//' | grep -v '^hugeleaf' | sort -u
    printf '\n== MIT\n\n'
    cat LICENSE-MIT
    printf '\n== Apache 2.0\n\n'
    cat LICENSE-APACHE
}

# Prints a program that runs here, for manual pages and completions: ours, or a quick build if only another architecture
# is packed.
own_program() {
    local machine ours
    machine=$(uname -m)
    ours=$target_dir/$machine-unknown-linux-musl/$profile/hugeleaf
    if [ "$cpu" = "$machine" ] || [ -x "$ours" ]; then
        echo "$ours"
    else
        cargo build --quiet --locked --profile guest --package hugeleaf-cli
        echo "$target_dir/guest/hugeleaf"
    fi
}

# Lays out the program's files below a prefix, as the archive has them. The packages place the same files.
stage_program() {
    local root=$stage/program share=$stage/program/share own
    mkdir -p "$root/bin" "$share/man/man1" "$share/bash-completion/completions" "$share/zsh/site-functions" \
        "$share/fish/vendor_completions.d" "$share/doc/hugeleaf"
    split_symbols "$target_dir/$cpu-unknown-linux-musl/$profile/hugeleaf" "$root/bin/hugeleaf"
    own=$(own_program)
    "$own" manpages "$share/man/man1"
    gzip -9n "$share"/man/man1/*.1
    "$own" completions bash >"$share/bash-completion/completions/hugeleaf"
    "$own" completions zsh >"$share/zsh/site-functions/_hugeleaf"
    "$own" completions fish >"$share/fish/vendor_completions.d/hugeleaf.fish"
    install -D -m 644 -t "$root/lib/systemd/system" contrib/systemd/hugeleaf-guard.service
    install -D -m 644 -t "$root/lib/systemd/user" contrib/systemd/user/hugeleaf-guard.service
    install -D -m 644 -t "$root/lib/sysusers.d" contrib/sysusers.d/hugeleaf.conf
    install -D -m 644 -t "$root/etc/hugeleaf" packaging/guard.toml
    install -D -m 644 -t "$share/doc/hugeleaf" README.md SECURITY.md
    install -D -m 644 -t "$share/doc/hugeleaf/prometheus" contrib/prometheus/*.rules.yml
    install -D -m 644 -t "$share/doc/hugeleaf/grafana" contrib/grafana/*.json
    copyright hugeleaf-cli "$cpu-unknown-linux-musl" >"$share/doc/hugeleaf/copyright"
    gzip -9nc CHANGELOG.md >"$share/doc/hugeleaf/changelog.gz"
}

# Lays out the C library twice, because Debian and rpm keep libraries in different folders.
stage_library() {
    local target=$cpu-unknown-linux-gnu built=$stage/library
    compile "$target" hugeleaf-capi
    mkdir -p "$built"
    split_symbols "$target_dir/$target/$profile/libhugeleaf_c.so" "$built/libhugeleaf_c.so"
    "${prefix}strip" --strip-debug --enable-deterministic-archives -o "$built/libhugeleaf_c.a" \
        "$target_dir/$target/$profile/libhugeleaf_c.a"
    DESTDIR=$stage/library-deb LIBDIR=lib/$cpu-linux-gnu scripts/install-library.sh /usr "$built" >/dev/null
    DESTDIR=$stage/library-rpm LIBDIR=lib64 scripts/install-library.sh /usr "$built" >/dev/null
    copyright hugeleaf-capi "$target" | tee "$stage/library-deb/copyright" >"$stage/library-rpm/copyright"
    rm -r "$built"
}

# Writes the bill of materials of a program: each crate with version, licence and checksum, in CycloneDX.
bill_of_materials() { # FILE
    local version=0.5.9 name=hugeleaf-bill-of-materials tool=$target_dir/tools/cyclonedx
    if ! "$tool/bin/cargo-cyclonedx" cyclonedx --version 2>/dev/null | grep -qw "$version"; then
        if [ "$profile" != dist ]; then
            echo "not run: bill of materials: the tool takes minutes to compile, and this is a trial"
            return
        fi
        # It runs for a second, so its compilation is what counts.
        cargo install --quiet --debug --locked --root "$tool" --version "$version" cargo-cyclonedx ||
            fail "cargo-cyclonedx $version cannot be installed" "connect to crates.io and run this again"
    fi
    # The tool writes beside each manifest of the workspace, so it gets a copy, whose folder is no part of the names.
    local copy=$work/hugeleaf
    rm -rf "$copy"
    mkdir "$copy"
    git ls-files -z -- '*Cargo.toml' Cargo.lock 'crates/*.rs' | xargs -0 cp --parents --target-directory "$copy"
    "$tool/bin/cargo-cyclonedx" cyclonedx --quiet --manifest-path "$copy/crates/cli/Cargo.toml" --format json \
        --spec-version 1.5 --no-build-deps --target "$cpu-unknown-linux-musl" --override-filename "$name"
    sed "s|path+file://$copy|path+file:///usr/src/hugeleaf|g" "$copy/crates/cli/$name.json" >"$1"
}

# Writes the manifest page: each file with its purpose, size and checksum.
manifest() {
    local file size sum purpose
    select_architecture "$1"
    cat <<END
# hugeleaf $version

Commit \`$(git rev-parse HEAD)\`, compiled by $(rustc --version) and $(gcc --version | head -n 1).

| to install on | command |
|---|---|
| any Linux | \`sh install.sh\`, next to the archives and SHA256SUMS |
| Debian, Ubuntu | \`apt install ./hugeleaf_$version-1_$debian.deb\` |
| Fedora, RHEL, openSUSE | \`dnf install ./hugeleaf-$version-1.$cpu.rpm\` |
| a container host | \`skopeo copy oci-archive:hugeleaf-$version-oci-$1.tar docker://REGISTRY/hugeleaf:$version\` |
| Python 3.11 or newer | \`pip install ./hugeleaf-$version-*_$cpu.whl numpy\` |
| a host for C programs | \`apt install ./libhugeleaf${version%%.*}_$version-1_$debian.deb ./libhugeleaf-dev_$version-1_$debian.deb\` |

The program is static and needs no libraries. To check all files: \`sha256sum --check SHA256SUMS\`.

| file | content | bytes | SHA-256 |
|---|---|---|---|
END
    for file in "$dist"/*; do
        file=${file##*/}
        case $file in
        *-symbols-*) purpose="debug symbols of program and C library" ;;
        *-linux-*.tar.gz) purpose="static program, manual pages, completions, unit" ;;
        *-oci-*) purpose="OCI image, as an archive" ;;
        *.cdx.json) purpose="bill of materials (CycloneDX 1.5)" ;;
        libhugeleaf*dev*) purpose="C library: header, static library, pkg-config file" ;;
        libhugeleaf*) purpose="C library" ;;
        *.deb) purpose="package for Debian" ;;
        *.rpm) purpose="package for rpm" ;;
        *.whl) purpose="Python package with the program" ;;
        install.sh) purpose="installer for the archives" ;;
        *) continue ;;
        esac
        size=$(stat -c %s "$dist/$file")
        sum=$(sha256sum <"$dist/$file" | cut -d' ' -f1)
        echo "| $file | $purpose | $size | \`$sum\` |"
    done
}

# A run that fails leaves the packages of the last one.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
final=$dist
dist=$work/packages
mkdir "$dist"
for architecture in "$@"; do
    select_architecture "$architecture"
    stage=$target_dir/dist-stage/$architecture
    rm -rf "$stage"
    mkdir -p "$stage"
    say "$architecture: bill of materials"
    bill_of_materials "$dist/hugeleaf-$version-linux-$architecture.cdx.json"
    say "$architecture: program"
    compile_program
    stage_program
    say "$architecture: C library"
    stage_library
    find "$stage" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    say "$architecture: packages"
    scripts/dist-pack.sh "$version" "$architecture" "$stage" "$dist"
    say "$architecture: Python wheel"
    scripts/dist-wheel.sh "$architecture" "$stage" "$dist"
done
sed "s|^release_address=\$|release_address=${RELEASE_URL:-}|" packaging/install.sh >"$dist/install.sh"
chmod 755 "$dist/install.sh"
manifest "$1" >"$dist/MANIFEST.md"
(cd "$dist" && sha256sum -- *) >"$work/SHA256SUMS"
mv "$work/SHA256SUMS" "$dist/SHA256SUMS"
mkdir -p "$final"
rm -f "$final"/*hugeleaf* "$final"/{install.sh,MANIFEST.md,SHA256SUMS,SHA256SUMS.asc}
mv "$dist"/* "$final"
say "in $final"
(cd "$final" && stat --printf '%s %n\n' -- *) | awk '{ printf "%8.1f MB  %s\n", $1 / 1e6, $2 }'
