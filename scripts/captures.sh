#!/bin/sh
# Makes the captured hosts of fixtures/ anew, from what the guests of `make vm-test` brought home
# (target/vm/HOST/captured). A guest that was not run leaves its fixtures as they are.
set -eu
cd "$(dirname "$0")/.."

# HOST, what its test called it, the fixture.
while read -r host name fixture; do
    from=target/vm/$host/captured/$name
    to=fixtures/$fixture
    if [ ! -d "$from" ]; then
        echo "captures: $fixture unchanged: $host was not run, or its test ended earlier"
        continue
    fi
    rm -rf "$to/proc" "$to/sys"
    mkdir -p "$to"
    cp -r "$from/proc" "$from/sys" "$to"
    # The first process is the one that is asked about.
    case $fixture in
    why/*) echo "why $(find "$to/proc" -maxdepth 1 -name '[0-9]*' -printf '%f\n' | sort -n | head -n 1)" >"$to/question" ;;
    esac
    echo "captures: $fixture from $host"
done <<'END'
arm64-16k limited arm64-16k
x86-6.1-cgroup-v1 limited x86-6.1-cgroup-v1
x86-7.3-two-nodes status x86-7.3-two-nodes
x86-7.3-two-nodes small-steps why/small-steps
x86-7.3-two-nodes copy-on-write why/copy-on-write
x86-7.3-swap-disk swapped why/swapped
arm64-16k pool-short why/arm64-16k
debian-13 postgres-stock why/postgres-stock
debian-13 postgres-pool-short why/postgres-beside-a-pool
END
