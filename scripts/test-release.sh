#!/usr/bin/env bash
# Tests scripts/release.sh in a copy, with scripts in place of dist.sh and dist-try.sh that only leave a file.
set -euo pipefail
cd "$(dirname "$0")/.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Files as they are here, committed or not, in a repository of their own.
mkdir "$work/copy"
git ls-files -z --cached --others --exclude-standard -- scripts contrib/kubernetes python CHANGELOG.md .gitignore \
    '*.toml' '*.lock' '*.rs' |
    xargs -0 cp --parents --target-directory "$work/copy"
cd "$work/copy"
git init --quiet --initial-branch main
cat >scripts/dist.sh <<'END'
#!/bin/sh
[ ! -e "$FAILS" ] || { echo "no space left"; exit 1; }
[ ! -e "$HANGS" ] || { touch "$HANGS.now"; sleep 60; }
[ ! -e "$MOVES" ] || git -C "$COPY" commit --quiet --allow-empty --message moved
mkdir -p "$DIST" && echo "$* $RELEASE_URL $MAINTAINER" >"$DIST/made"
sha256sum "$DIST/made" >"$DIST/SHA256SUMS"
END
cat >scripts/dist-try.sh <<'END'
#!/bin/sh
[ -e "$DIST/made" ] && grep -qx "version = \"$NEW\"" Cargo.toml
END
grep -qx '## Unreleased' CHANGELOG.md || sed -i '0,/^## /s//## Unreleased\n\n- A change.\n\n## /' CHANGELOG.md
git config user.name tester
git config user.email tester@localhost
git add --all
git commit --quiet --message "Stand-ins"
export COPY=$PWD FAILS=$work/fails HANGS=$work/hangs MOVES=$work/moves MAINTAINER='Someone <someone@example.org>'
export CARGO_TARGET_DIR=$work/target
old=$(. scripts/dist-tools.sh && workspace_version)
IFS=. read -r major minor _ <<<"$old"
new=$major.$((minor + 1)).0
export NEW=$new

fail() { printf 'FAILED: %s\n%s\n' "$*" "${said:-}" >&2; exit 1; }
expect() { # STATUS WORDS COMMAND…
    local status=0
    said=$("${@:3}" 2>&1) || status=$?
    [ "$status" = "$1" ] || fail "${*:3}: status $status instead of $1"
    [[ $said == *"$2"* ]] || fail "${*:3}: does not say: $2"
    [ "$1" != 3 ] || [[ $said == *"next: "* ]] || fail "${*:3}: no next step"
}
start=$(git rev-parse HEAD)
unchanged() {
    [ "$(git rev-parse HEAD)" = "$start" ] || fail "the branch moved"
    [ -z "$(git tag --list "v$new")" ] || fail "a tag is left"
    [ -z "$(git status --porcelain)" ] || fail "files are changed"
    [ "$(git worktree list | wc -l)" = 1 ] || fail "a worktree is left"
}

echo "== refusals"
expect 2 usage scripts/release.sh
expect 2 usage scripts/release.sh --unknown
expect 3 "is not a version" scripts/release.sh 1.2
expect 3 "is not a version" scripts/release.sh "1.2.3; true"
expect 3 "is older than" scripts/release.sh 0.0.1
expect 3 "is not an https address" env RELEASE_URL=http://example.org scripts/release.sh "$new"
expect 3 "need quoting" env RELEASE_URL='https://example.org/$(id)' scripts/release.sh "$new"
expect 3 "is not a name with an address" env MAINTAINER= scripts/release.sh "$new"
expect 3 "no secret key" env SIGN_KEY=missing@localhost scripts/release.sh "$new"
git tag "v$new"
expect 3 "is tagged already" scripts/release.sh "$new"
git tag --delete "v$new" >/dev/null
touch untracked
expect 3 "has changes" scripts/release.sh "$new"
rm untracked
git switch --quiet --detach
expect 3 "no branch" scripts/release.sh "$new"
git switch --quiet main
unchanged

echo "== dry run"
expect 0 "+version = \"$new\"" env MAINTAINER= scripts/release.sh --dry-run "$new"
[[ $said == *"+## $new ("* && $said == *"Cargo.lock"* ]] || fail "changelog or lock file is missing"
unchanged

echo "== failures"
touch "$FAILS"
expect 1 "no space left" scripts/release.sh "$new"
rm "$FAILS"
unchanged
touch "$MOVES"
expect 3 "has moved meanwhile" scripts/release.sh "$new"
rm "$MOVES"
git reset --quiet --hard "$start"
unchanged
touch "$HANGS"
setsid scripts/release.sh "$new" >/dev/null 2>&1 &
release=$!
until [ -e "$HANGS.now" ] || ! kill -0 "$release" 2>/dev/null; do sleep 0.1; done
expect 3 "another release is being made" scripts/release.sh "$new"
kill -KILL -- "-$release"
wait "$release" 2>/dev/null || true
rm "$HANGS"

echo "== a release"
expect 0 "released $new" env RELEASE_URL=https://example.org/v1 ARCHITECTURES=x86-64 scripts/release.sh "$new"
[ "$(cat "$work/target/release-$new/made")" = "x86-64 https://example.org/v1 $MAINTAINER" ] || fail "the packages"
[ "$(git rev-parse "v$new^{commit}")" = "$(git rev-parse HEAD)" ] || fail "the tag is elsewhere"
[ "$(git rev-parse HEAD^)" = "$start" ] || fail "more than one commit"
[ "$(git log -1 --format=%s)" = "Release $new" ] || fail "the subject of the commit"
for file in Cargo.toml lab/Cargo.toml python/Cargo.toml python/hugeleaf/__init__.py contrib/kubernetes/hugeleaf/Chart.yaml; do
    git grep -qE "^(version|__version__|appVersion)(:| =) \"?$new\"?$" -- "$file" || fail "the version in $file"
done
! git grep -nE "^(version|__version__|appVersion)(:| =) \"?$old\"?$" -- '*.toml' '*.py' contrib/kubernetes ||
    fail "the old version is left"
! git grep -q "^## Unreleased\|^Nothing has been released" -- CHANGELOG.md || fail "the changelog"
[ -z "$(git status --porcelain)" ] || fail "files are changed"
expect 3 "is tagged already" scripts/release.sh "$new"
echo "release.sh: all passed"
