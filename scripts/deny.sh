#!/usr/bin/env bash
# Checks dependencies with cargo-deny and deny.toml: licences, sources, versions, and known weaknesses where their database
# can be reached. Installs cargo-deny into target/tools where it is missing: that takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

tools=$(realpath -m "${CARGO_TARGET_DIR:-target}/tools")
export PATH="$PATH:$tools/bin"
if ! cargo deny --version >/dev/null 2>&1; then
    # Its own target folder: the compiled crates of the workspace stay as they are.
    CARGO_TARGET_DIR="$tools/target" cargo install --locked --quiet --root "$tools" cargo-deny || {
        echo "not run: deny: cargo-deny cannot be installed"
        exit 0
    }
    rm -rf "$tools/target"
fi
# The lab and the Python package are workspaces of their own, which may compile a crate in two versions.
for workspace in . lab python; do
    deny=(cargo deny --locked --manifest-path "$workspace/Cargo.toml" --config deny.toml)
    "${deny[@]}" check licenses sources
    [ "$workspace" != . ] || "${deny[@]}" check --deny unmatched-skip --deny unnecessary-skip bans
    if "${deny[@]}" fetch db >/dev/null 2>&1; then
        "${deny[@]}" check advisories
    else
        echo "not run: the part of deny about advisories: their database cannot be reached"
    fi
done
