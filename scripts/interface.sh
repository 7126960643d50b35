#!/usr/bin/env bash
# Lists the interface of hugeleaf: every command, argument and flag with its default and its possible values, every name
# of a metric, and every key of JSON with its type. Two versions are compared by the difference of their lists.
#   scripts/interface.sh hugeleaf [hugeleaf-lab]     as in: scripts/interface.sh target/release/hugeleaf >interface.txt
# Flags come from the help of each command. JSON keys come from what the commands print about the captured hosts in
# fixtures/ and about small live runs, so it runs as root, on Linux with huge pages, and takes less than two minutes. It
# needs jq, and redis-server for `balance`. It takes the host lock; pools and files are as before when it ends.
set -euo pipefail
fixtures=$(realpath "$(dirname "$0")/../fixtures")
[ "$#" -gt 0 ] || { sed -n '2,7s/^# //p' "$0"; exit 2; }
[ "$(id -u)" = 0 ] || { echo "run as root: promotion and plans are part of the list" >&2; exit 3; }
# The journal, the guard's socket and its state are in folders of our own.
if [ -z "${HUGELEAF_INTERFACE:-}" ]; then
    HUGELEAF_INTERFACE=1 exec unshare --mount "$0" "$@"
fi
for folder in /run/hugeleaf /var/lib/hugeleaf; do
    mkdir -p "$folder"
    mount -t tmpfs none "$folder"
done

programs=()
for program in "$@"; do programs+=("$(realpath "$program")"); done

export LC_ALL=C COLUMNS=4000 NO_COLOR=1
work=$(mktemp -d)
started=()
finish() {
    for job in "${started[@]}"; do kill "$job" 2>/dev/null || true; done
    wait
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/json"
cd "$work"
exec 9>/run/lock/hugeleaf.lock
flock 9

# --- commands and flags ---------------------------------------------------------------------------------------------

# The lines of a section of a help text.
section() { awk -v head="$1:" '$0 == head { on = 1; next } /^$/ { on = 0 } on'; }

# The name of an argument or flag and, of its help, the default and the possible values.
interface_of() { # PROGRAM COMMAND…
    local program=$1 help name
    shift
    help=$("$program" "$@" -h 9>&-)
    name="$(basename "$program")${*:+ $*}"
    echo "command $name"
    { section Arguments <<<"$help" && section Options <<<"$help"; } | awk -v name="$name" '
        { line = $0; sub(/^ +/, "", line)
          match(line, /  +/); flag = RSTART ? substr(line, 1, RSTART - 1) : line
          said = ""
          while (match(line, /\[(default|possible values): [^]]*\]/)) {
              said = said " " substr(line, RSTART, RLENGTH); line = substr(line, RSTART + RLENGTH)
          }
          print "flag " name " " flag said }'
    section Commands <<<"$help" | awk '{ print $1 }' | while read -r command; do
        [ "$command" = help ] || interface_of "$program" "$@" "$command"
    done
}

has_command() { # PROGRAM COMMAND…
    "$@" -h >/dev/null 2>&1 9>&-
}

for program in "${programs[@]}"; do
    interface_of "$program"
    # Commands that no help lists: scripts and hugeleaf itself call them.
    for hidden in manpages workload ask-server; do
        ! has_command "$program" "$hidden" || interface_of "$program" "$hidden"
    done
done | sort -u

# --- JSON -----------------------------------------------------------------------------------------------------------

# Keys that are data (arms, sizes, counters of /proc/vmstat) are written as *.
paths='def keys_of: if type == "object" then
          to_entries[] | .key as $k | ($k | if test("^[a-z][a-z0-9_]*$") then . else "*" end) as $name
          | [$name] + (.value | keys_of)
      elif type == "array" then (if length == 0 then ["[]"] else .[] | ["[]"] + keys_of end)
      else ["\u0000" + type] end;
      keys_of | join(".") | gsub("\\.\\[\\]"; "[]") | sub("\\.?\u0000"; " ")'

record() { # NAME, with JSON on stdin
    jq -r "$paths" 2>/dev/null >>"$work/json/${1// /_}" || true
}

# What `PROGRAM ARGUMENT… --json` prints, for the first program that has the command. Words that end in a slash or begin
# with a dash end the command. A status other than 0 is part of many answers.
answer() { # NAME ARGUMENT…
    local name=$1 program
    shift
    for program in "${programs[@]}"; do
        if "$program" "$1" -h >/dev/null 2>&1 9>&-; then
            timeout 60 "$program" --json "$@" </dev/null 2>>"$work/stderr" 9>&- | record "$name" || true
            return
        fi
    done
}

# The same for a benchmark: `hugeleaf-lab NAME`, or `hugeleaf bench NAME`. Its result file has the same keys.
benchmark() { # NAME ARGUMENT…
    local name=$1 program
    shift
    for prefix in '' bench; do
        for program in "${programs[@]}"; do
            # shellcheck disable=SC2086
            if has_command "$program" $prefix "$name"; then
                timeout 100 "$program" --json $prefix "$name" "$@" --output "$work/$name.json" \
                    </dev/null 2>>"$work/stderr" 9>&- | record "bench $name" || true
                [ ! -e "$work/$name.json" ] || record "result file" <"$work/$name.json"
                return
            fi
        done
    done
}

# Captured hosts.
for host in "$fixtures"/*/ "$fixtures"/why/*/ "$fixtures"/run/*/; do
    [ -d "$host/proc" ] || continue
    for command in status mem check verify plan; do answer "$command" "$command" --root "$host"; done
    answer "mem --global" mem --global --root "$host"
    for process in "$host"/proc/[0-9]*/; do
        pid=$(basename "$process")
        [ "$pid" != '[0-9]*' ] || continue
        answer why why "$pid" --root "$host"
        answer "why --all" why "$pid" --all --root "$host"
        answer "mem TARGET" mem "$pid" --all --root "$host"
        answer "plan TARGET" plan "$pid" --root "$host"
    done
    answer "plan --bytes" plan --bytes 64M --name cache --root "$host"
    answer "run --dry-run" run --dry-run --root "$host" -- true
    answer "guard --once" guard --once --dry-run --root "$host"
done
for trace in "$fixtures"/traces/*.trace; do
    answer "trace show" trace show "$trace" --all
    answer "trace diff" trace diff "$fixtures/traces/lock-base.trace" "$trace" --all
done

# This host: a process that holds 64M, and commands that change nothing but that process.
hold() { # SECONDS
    mkfifo pipe
    { head -c 64M /dev/zero | tr '\0' a; exec sleep "$1"; } >pipe 9>&- &
    started+=("$!")
    tail -c 64M <pipe >/dev/null 9>&- &
    held=$!
    started+=("$held")
    until [ "$(awk '/^RssAnon/ { print $2 }' "/proc/$held/status")" -ge 65536 ]; do sleep 0.1; done
}
hold 300
for command in status mem check verify; do answer "$command" "$command"; done
answer "mem --global" mem --global
answer "mem TARGET" mem "$held"
answer "mem --orders" mem "$held" --orders
answer why why "$held"
answer predict predict "$held" --for 2s
answer "promote --dry-run" promote "$held" --dry-run
answer promote promote "$held" --budget 100%
answer "guard --once" guard --once
answer demote demote "$held" --budget 100%
rises='cmd:tr -d . </proc/uptime | cut -d" " -f1'
answer "prove --dry-run" prove "$held" --metric "$rises" --dry-run
answer prove prove "$held" --metric "$rises" --pairs 8 --interval 100ms --settle 100ms --budget 100% --output "$work/prove.json"
[ ! -e prove.json ] || record "result file" <prove.json
answer trace trace --for 1s --output "$work/live.trace"
answer "trace show" trace show "$work/live.trace" --all
answer "run --dry-run" run --dry-run -- true
answer "run --report" run --report "$work/run.json" --data thp:2M -- sort "$0" >/dev/null
[ ! -e run.json ] || record "run --report" <run.json
answer try try --cache 64M --for 2s --html "$work/try.html"

# The guard and the balancer, with rules of their own.
cat >guard.toml <<RULES
schema = 1
listen = "off"
[default]
action = "promote"
min_bytes = "16M"
min_cpu = "0%"
min_age = "0s"
looks = 1
[[rule]]
name = "tail"
action = "promote"
[[balance]]
name = "target"
target = "1G"
[[balance.component]]
name = "cache"
kind = "redis"
address = "$work/redis.sock"
least = "16M"
most = "512M"
RULES
if command -v redis-server >/dev/null; then
    redis-server --port 0 --unixsocket "$work/redis.sock" --save '' --maxmemory 64M --dir "$work" >redis.log 9>&- &
    started+=("$!")
    until [ -S redis.sock ]; do sleep 0.1; done
fi
answer "guard --check" guard --check --config "$work/guard.toml"
answer "guard --once" guard --once --config "$work/guard.toml"
answer "balance --once" balance --once --dry-run --config "$work/guard.toml"
"${programs[0]}" guard --config "$work/guard.toml" >guard.log 2>&1 9>&- &
guard=$!
started+=("$guard")
until [ -S /run/hugeleaf/guard.sock ]; do sleep 0.1; done
sleep 4 # it promotes what it finds, and writes that into its log
for words in log pause resume reload status; do answer "guard $words" guard "$words"; done
kill "$guard"
wait "$guard" || true

# A plan: one pool that is given back.
answer "plan --output" plan --bytes 4M --name cache --output "$work/plan.toml"
answer "apply --dry-run" apply --dry-run "$work/plan.toml"
answer apply apply "$work/plan.toml"
answer verify verify
answer "undo --list" undo --list
answer undo undo

# Benchmarks, as small as they get.
cat >sort.toml <<'WORKLOAD'
schema = 1
title = "sort"
[prepare]
run = 'seq 100000 >"$work/text"'
[load]
run = 'sort -R -S 32M -o "$work/sorted" "$work/text"'
[[measure]]
name = "time"
unit = "s"
better = "lower"
seconds = true
WORKLOAD
answer "bench --list" bench --list
benchmark file "$work/sort.toml" --yes --pairs 1 --pages base,thp:2M
benchmark chase --sizes 1M --pages base,thp:2M --for 1s --rounds 6
benchmark pin --pages base,thp:2M --threads 1 --for 1s --rounds 6
benchmark pagetables --processes 2 --region 16M --pages base,thp:2M
benchmark mover --device memory --pages base,thp:2M --for 1s --rounds 6
benchmark oltp --warehouses 1 --shrink 100 --for 1s --ramp-up 1s --cache 16M --pages base,thp:2M --rounds 1
answer check check --results "$work"
"${programs[0]}" bench chase --sizes 256M --pages base --for 20s --output busy.json >/dev/null 2>&1 9>&- &
started+=("$!")
sleep 2 # it fills its memory
answer predict predict "$!" --for 2s --chase "$work/chase.json"
answer compare compare "$work/chase.json" "$work/chase.json" --all
answer "compare --arms" compare "$work/chase.json" --arms base,thp:2M
mkdir before after
cp ./*.json before/ && cp ./*.json after/
answer "compare FOLDERS" compare before after --counts
answer "compare --history" compare --history before after

for list in json/*; do
    name=$(basename "$list" | tr _ ' ')
    sort -u "$list" | awk -v name="$name" '
        { path = $1 == "" ? "." : $1
          if (path ~ /\[\]$/) $2 = "" # an empty list has no type
          if (index(types[path], $2)) next
          types[path] = types[path] (types[path] == "" ? "" : "|") $2 }
        END { for (path in types) if (types[path] == "") for (other in types) # an empty list says less than a full one
                  if (other != path && index(other, path) == 1) delete types[path]
              for (path in types) print "json " name ": " path (types[path] == "" ? "" : " " types[path]) }'
done | sort

# --- metrics --------------------------------------------------------------------------------------------------------

for words in metrics "verify --prometheus"; do
    for host in '' "$fixtures/x86-4k-two-nodes"; do
        # shellcheck disable=SC2086
        "${programs[0]}" $words ${host:+--root "$host"} 2>/dev/null 9>&- |
            sed -nE 's/^# TYPE (.*)/metric \1/p' || true
    done
done | sort -u
