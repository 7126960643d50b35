#!/bin/sh
# Moves the symbols of a program into PROGRAM.debug, which debuggers find by the link left in PROGRAM.
# Without objcopy (binutils) the program keeps them.
set -eu

program=$1
command -v objcopy >/dev/null 2>&1 || exit 0
# A program without a table of symbols was split before.
objdump --section-headers "$program" | grep -q ' \.gnu_debuglink' && exit 0
objcopy --only-keep-debug --compress-debug-sections "$program" "$program.debug"
# Not in place: the file has a second name in Cargo's folder, which Cargo would find changed.
objcopy --strip-all --add-gnu-debuglink="$program.debug" "$program" "$program.new"
mv "$program.new" "$program"
