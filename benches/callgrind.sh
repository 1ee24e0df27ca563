#!/usr/bin/env bash
# Counts the instructions of one Rust bench, function by function, under Valgrind.
#
#     benches/callgrind.sh merge packed/interleaved    a file of rust/*/benches, a filter of its names
#     TOP=40 benches/callgrind.sh keys                 more lines
#     INSIDE='*gallop*' benches/callgrind.sh merge     only what runs inside; default: `measured`
#
# Every bench runs once. Counts hardly differ from run to run, however busy the machine is; they are
# no times: a cache miss costs nothing here.
set -euo pipefail
cd "$(dirname "$0")/.."

bench=${1:?which bench: the name of a file in rust/*/benches, such as merge}
filter=${2:-}
top=${TOP:-25}
profile=${BENCH_PROFILE:---profile fast --config profile.fast.opt-level=3
    --config profile.fast.debug-assertions=false --config profile.fast.overflow-checks=false}

command -v valgrind >/dev/null || { echo "callgrind.sh: valgrind is not installed" >&2; exit 1; }

# shellcheck disable=SC2086 # several words
binary=$(cargo bench $profile --workspace --exclude plait-py --bench "$bench" --no-run \
    --message-format=json | sed -n 's/.*"executable":"\([^"]*\)".*/\1/p' | tail -n 1)

counts=$(mktemp)
trap 'rm -f "$counts"' EXIT
valgrind --quiet --tool=callgrind "--callgrind-out-file=$counts" \
    --collect-atstart=no "--toggle-collect=${INSIDE:-*measured*}" \
    "$binary" --bench --test ${filter:+"$filter"} >&2

# One line a function: what was inlined into it from other files is added up.
echo "  instructions  share  function"
callgrind_annotate --auto=no --threshold=100 "$counts" | awk '
    /PROGRAM TOTALS/ && !total { total = number($1) }
    /file:function/ { listed = 1; next }
    listed && match($0, /^ *[0-9,]+ \([^)]*\) +/) {
        name = substr($0, RLENGTH + 1)
        sub(/^[^:]*:/, "", name)
        sub(/ \[[^\]]*\]$/, "", name)
        sum[name] += number($1)
    }
    function number(text) { gsub(",", "", text); return text + 0 }
    END {
        printf "%14d 100.0%%  all\n", total
        for (name in sum) printf "%14d %5.1f%%  %s\n", sum[name], 100 * sum[name] / total, name
    }' | sort -rn | head -n "$((top + 1))"
