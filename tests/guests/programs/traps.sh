# SPDX-License-Identifier: Apache-2.0
# What shells do with signals and pipes.
trap 'echo term' TERM
trap 'echo usr1' USR1
trap 'echo usr2' USR2
trap 'echo exit' EXIT
kill -TERM $$
kill -USR1 $$
kill -USR2 $$
(trap - TERM; kill -TERM "$(exec sh -c 'echo $PPID')"; echo not reached)
echo "a subshell: $?"
sh -c 'trap "" TERM; kill -TERM $$; echo spared; sh -c "kill -TERM \$\$"; echo "$?"'
# It says when it has no traps of ours any more.
ready=$(mktemp -u)
mkfifo "$ready"
sh -c 'echo ready >"$0"; exec sleep 1000' "$ready" &
read -r line <"$ready"
kill -TERM $!
wait $!
echo "a background job: $line, $?"
sh -c 'echo ready >"$0"; exec sleep 1000' "$ready" &
read -r line <"$ready"
kill -INT $!
kill -HUP $!
wait $!
echo "another one: $line, $?"
yes | head -n 2
echo one two three | tr ' ' '\n' | sort -r | while read -r word; do echo "$word"; done
exec 3<<END
from a file
END
read -r line <&3
echo "$line"
exec 3<&-
timeout -s TERM 0.2 sleep 1000
echo "timeout: $?"
# The time is up when the trap is set: timeout's own alarm tells it so. It takes that for its end, by 128 + USR2, before
# it knows its child, which may be as far as this sooner: when it sleeps it knows.
timeout -s USR2 1000 sh -c 'trap "echo told; exit 4" USR2
until grep -q "^State:.S" /proc/$PPID/status; do sleep 0.05; done
echo ready >"$0"; while :; do sleep 0.05; done' "$ready" &
read -r line <"$ready"
kill -ALRM $!
wait $!
echo "timeout: $line, $?"
rm "$ready"
(ulimit -n 8; echo "few files: $(echo here)")
trap - TERM
kill -TERM $$
