# Answers commands on a serial line, descriptor 3; its files are in $run.
#   in   ID SECONDS COMMAND          one line
#   out  =ringway ID STATUS BYTES    one line, then BYTES of what the command printed; ID 0 says that the guest is ready
mkfifo "$run/asked" "$run/finished"
exec 4<>"$run/finished" 5<>"$run/asked"
# When a child ends while a shell reads, it starts to read anew and forgets the part of the line that it has. The one
# that reads characters as they come has no children; from a FIFO a line comes whole.
while read -r line <&3; do
  printf '%s\n' "$line" >&5
done &
# One process writes, so that answers do not mix.
while read -r id status <&4; do
  printf '=ringway %s %s %s\n' "$id" "$status" "$(wc -c <"$run/out.$id")" >&3
  cat "$run/out.$id" >&3
  rm -f "$run/out.$id"
done &
# What poweroff, reboot and halt without -f ask of the first process, which this is.
trap 'poweroff -f' USR2; trap 'reboot -f' TERM; trap 'halt -f' USR1
uname -r >"$run/out.0"
echo "0 0" >&4
while read -r id seconds command <&5; do
  (
    timeout "$seconds" sh -c "$command" </dev/null >"$run/out.$id" 2>&1 3<&- 4<&- 5<&-
    echo "$id $?" >&4
  ) &
done
