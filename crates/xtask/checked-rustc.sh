#!/bin/sh
# The compiler for Forebay's crates in the checks (RUSTC_WORKSPACE_WRAPPER). A library's unit tests are the library compiled once more,
# only for them, which takes longer than they run: they are not optimised. Exceptions: those of the codecs, and the simulator's, which
# search a space of states.
compiler=$1
shift
case " $* " in
*" --crate-name sim "* | *" --crate-name forebay_dataset "*) ;;
*" --test "*) set -- "$@" -Copt-level=0 ;;
esac
exec "$compiler" "$@"
