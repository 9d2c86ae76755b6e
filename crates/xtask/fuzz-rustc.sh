#!/bin/sh
# The compiler for Forebay's crates when they are fuzzed (RUSTC_WORKSPACE_WRAPPER): branches and comparisons are counted for
# libFuzzer, and AddressSanitizer watches. What others wrote is not what is looked for: it is compiled as for any test, once.
compiler=$1
shift
# The pinned compiler accepts unstable flags this way.
RUSTC_BOOTSTRAP=1 exec "$compiler" "$@" \
    -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address --cfg fuzzing
