# Shared by test.sh and test-all.sh; source it.
# shellcheck shell=bash

# Prints where the run is. SECONDS counts from the start of the script.
step() { printf '\n== %s (%d s so far)\n' "$*" "$SECONDS"; }

# Fetches a component that a minimal Rust installation lacks; says so where that fails.
has_component() { # COMMAND COMPONENT
    cargo "$1" --version >/dev/null 2>&1 && return 0
    command -v rustup >/dev/null 2>&1 && rustup component add "$2" </dev/null && return 0
    echo "not run: cargo $1 (component $2 is not installed)"
    return 1
}

# Compiles with clippy in rustc's place: one pass compiles and lints. Without clippy, only compiles.
# The lints are those of [workspace.lints]; a warning is an error.
lint_while_compiling() {
    if has_component clippy clippy; then
        RUSTC_WORKSPACE_WRAPPER=$(command -v clippy-driver)
        CLIPPY_ARGS="-Dwarnings__CLIPPY_HACKERY__"
        export RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS
    fi
}

# A test program that runs longer than this many seconds is taken to hang. It is ended with SIGABRT;
# the names it printed last tell the test.
hangs_after=${HUGELEAF_TEST_HANGS_AFTER:-1800}
runner=()
if command -v timeout >/dev/null 2>&1; then
    runner=(--config "target.'cfg(unix)'.runner=['timeout','--foreground','--verbose','--signal=ABRT','--kill-after=30','$hangs_after']")
fi

# The program that runs virtual machines, and the guest of `make test`.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
vm=$target/debug/hugeleaf-vm
guest=x86-7.3-two-nodes
