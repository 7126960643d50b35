#!/usr/bin/env bash
# What we depend on, by cargo deny and deny.toml: licences, sources, versions, and known weaknesses where their database can be
# reached. Says "not run" without cargo-deny: `cargo install --locked cargo-deny` compiles it in some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! cargo deny --version >/dev/null 2>&1; then
    echo "not run: deny: cargo-deny is not installed (cargo install --locked cargo-deny)"
    exit 0
fi
cargo deny --locked check licenses bans sources
if ! cargo deny --locked fetch db >/dev/null 2>&1; then
    echo "not run: the part of deny about advisories: their database cannot be reached"
    exit 0
fi
cargo deny --locked check advisories
