#!/bin/sh
# The compiler for Forebay's crates in the checks (RUSTC_WORKSPACE_WRAPPER). A library's unit tests are the library compiled once more,
# only for them, which takes longer than they run: they are not optimised, except those of the codecs.
compiler=$1
shift
case " $* " in
*" --crate-name forebay_dataset "*) ;;
*" --crate-name forebay_"*" --test "*) set -- "$@" -Copt-level=0 ;;
esac
exec "$compiler" "$@"
