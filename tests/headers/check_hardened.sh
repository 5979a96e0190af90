#!/bin/sh
# check_hardened.sh BUILD FILE...: full RELRO, position-independent, stack protector, linked to no GPU library: the files.
# FORTIFY_SOURCE: what built them. (Which functions it replaces depends on the compiler: no symbol proves it.)
set -eu
export LC_ALL=C
build=$1 failed=0
shift
complain() { echo "$1: $2"; failed=1; }
for file; do
  readelf -lW "$file" | grep -q GNU_RELRO || complain "$file" "no RELRO, expected -Wl,-z,relro"
  readelf -dW "$file" | grep -qE 'BIND_NOW|Flags:.* NOW' || complain "$file" "functions are bound late, expected -Wl,-z,now"
  readelf -hW "$file" | grep -qE 'Type: +DYN' || complain "$file" "not position-independent, expected b_pie=true"
  ! readelf -dW "$file" | grep -E 'NEEDED.*(cuda|nccl|hip|rccl|nvidia)' || complain "$file" "linked to a GPU's library, expected: found at run time"
  readelf --dyn-syms -W "$file" | grep -q ' __stack_chk_fail' || complain "$file" "no stack protector, expected -fstack-protector-strong"
done
commands=$build/compile_commands.json
ours=$(grep -E '"command": .* -MQ (src|launcher)/' "$commands") || complain "$commands" "no command of src or launcher"
for flag in '-D_FORTIFY_SOURCE=[23]' '-fstack-protector-strong'; do
  without=$(echo "$ours" | grep -cv -e "$flag") || true
  [ "$without" = 0 ] || complain "$commands" "$without commands without $flag"
done
exit $failed
