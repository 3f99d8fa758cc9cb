# Libraries of jobs that run stay: programs that such a job starts would run without them.
pids=$(grep -ls '/lib/cudaw-@VERSION@/' /proc/[0-9]*/maps | tr -dc '0-9\n' | tr '\n' ' ')
if [ "$pids" ]; then
	echo "cudaw-libs-@VERSION@: jobs that run have these libraries: processes ${pids% }. Remove them later." >&2
	exit 1
fi
