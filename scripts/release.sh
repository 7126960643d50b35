#!/usr/bin/env bash
# Makes a release: scripts/release.sh [--dry-run] VERSION
# Sets the version, closes the changelog's entry, builds all packages, then commits and tags. Uploads nothing.
# It works in a worktree of its own: nothing is changed here before the last step, which sets the tag and moves the branch.
# Run `make test-all` first.
# --dry-run shows the changes of files, and builds and commits nothing.
#
# MAINTAINER='Name <address>'  maintainer of the packages; required
# RELEASE_URL=https://…        address of the uploaded files; the installer downloads from there
# SIGN_KEY=KEY                 signs SHA256SUMS with this key of gpg
# ARCHITECTURES='x86-64'       leaves arm64 out
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/dist-tools.sh

dry=
if [ "${1:-}" = --dry-run ]; then
    dry=1
    shift
fi
if [ $# != 1 ] || [ "${1#-}" != "$1" ]; then
    echo "usage: $0 [--dry-run] VERSION" >&2
    exit 2
fi
version=$1
old=$(workspace_version)
url=${RELEASE_URL:-}
read -ra architectures <<<"${ARCHITECTURES:-x86-64 arm64}"

check_request() {
    [[ $version =~ ^(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)$ ]] ||
        fail "$version is not a version" "name three numbers, for example $old"
    [ "$(printf '%s\n' "$old" "$version" | sort -V | tail -n 1)" = "$version" ] ||
        fail "version $version is older than $old" "choose a newer one"
    ! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null ||
        fail "version $version is tagged already" \
            "choose a newer one; if that release was not completed: git tag --delete v$version"
    git symbolic-ref --quiet HEAD >/dev/null || fail "no branch is checked out" "git switch main"
    [ -z "$(git status --porcelain)" ] || fail "the working tree has changes" "commit or stash them: git status"
    grep -qx '## Unreleased' CHANGELOG.md || fail "CHANGELOG.md has no entry 'Unreleased'" "list the changes there, and commit"
    case $url in
    '' | https://*) ;;
    *) fail "RELEASE_URL=$url is not an https address" "name the https folder of the release" ;;
    esac
    # The address becomes a word of a shell script.
    [[ $url != *[!A-Za-z0-9:/._~%+-]* ]] || fail "RELEASE_URL=$url contains characters that need quoting" "percent-encode them"
    [ -n "$dry" ] && return
    [[ ${MAINTAINER:-} == *' <'*@*.*'>' ]] || fail "MAINTAINER='${MAINTAINER:-}' is not a name with an address" \
        "MAINTAINER='Name <name@domain>' $0 $version"
    [ -z "${SIGN_KEY:-}" ] || gpg --list-secret-keys "$SIGN_KEY" >/dev/null 2>&1 ||
        fail "gpg has no secret key $SIGN_KEY" "gpg --list-secret-keys"
}

# Sets the version in manifests and lock files, of the Python package and of the Helm chart. The Ansible collection has
# versions of its own. Packages of others have a source in a lock file, ours have none.
set_version() {
    local file
    for file in Cargo.toml lab/Cargo.toml python/Cargo.toml crates/region/Cargo.toml crates/sqlite/loaded/Cargo.toml; do
        sed -i "/^version = /s/\"$old\"/\"$version\"/; /path = /s/version = \"$old\"/version = \"$version\"/" "$file"
    done
    for file in Cargo.lock lab/Cargo.lock python/Cargo.lock fuzz/Cargo.lock crates/sqlite/loaded/Cargo.lock; do
        sed -i "/^name = \"hugeleaf/{n;s/^version = \"$old\"$/version = \"$version\"/}" "$file"
    done
    sed -i "s/^__version__ = \"$old\"$/__version__ = \"$version\"/" python/hugeleaf/__init__.py
    sed -i "s/^\(version\|appVersion\): $old$/\1: $version/" contrib/kubernetes/hugeleaf/Chart.yaml
    for file in Cargo.toml lab/Cargo.toml python/Cargo.toml crates/sqlite/loaded/Cargo.toml; do
        cargo metadata --locked --format-version 1 --manifest-path "$file" >/dev/null ||
            fail "$file and its lock file differ after the change" "cargo update --workspace --manifest-path $file, and commit"
    done
}

close_changelog() {
    sed -i "s/^## Unreleased$/## $version ($(date --utc +%Y-%m-%d))/; s/^Nothing has been released yet\. //" CHANGELOG.md
}

check_request
tree=$target_dir/release
mkdir -p "$target_dir"
exec {lock}<"$target_dir"
flock --nonblock "$lock" || fail "another release is being made" "wait until it ends"
# A run that was killed leaves its worktree.
git worktree remove --force "$tree" 2>/dev/null || rm -rf "$tree"
git worktree prune
git worktree add --quiet --detach "$tree" HEAD
trap 'git worktree remove --force "$tree"' EXIT
start=$(git rev-parse HEAD)
(
    cd "$tree"
    set_version
    close_changelog
    if [ -n "$dry" ]; then
        git --no-pager diff --stat
        git --no-pager diff --unified=0 -- '*.toml' CHANGELOG.md
        exit
    fi
    git commit --quiet --all --message "Release $version"
)
packages=$target_dir/release-$version
if [ -n "$dry" ]; then
    say "would build packages for ${architectures[*]} in $packages, then commit and tag v$version"
    exit
fi

say "packages"
(cd "$tree" && CARGO_TARGET_DIR=$target_dir DIST=$packages RELEASE_URL=$url scripts/dist.sh "${architectures[@]}")
if [ -n "${SIGN_KEY:-}" ]; then
    gpg --batch --yes --local-user "$SIGN_KEY" --armor --detach-sign "$packages/SHA256SUMS"
fi
(cd "$tree" && CARGO_TARGET_DIR=$target_dir DIST=$packages scripts/dist-try.sh)

commit=$(git -C "$tree" rev-parse HEAD)
[ "$(git rev-parse HEAD)" = "$start" ] || fail "the branch has moved meanwhile" "run this again"
git tag --annotate --message "hugeleaf $version" "v$version" "$commit"
git merge --quiet --ff-only "$commit" || {
    git tag --delete "v$version" >/dev/null
    fail "the branch cannot be moved to the release" "git status, then run this again"
}
cat <<END
released $version: commit $(git rev-parse --short HEAD), tag v$version
  packages  $packages
next:
  git push origin HEAD v$version
  upload the files in $packages${url:+ to $url}
END
