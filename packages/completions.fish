# fish completion. Written from the help texts of the program.

function __cudaw_jobs
    cudaw ps --columns id,name 2>/dev/null |
        awk 'NF <= 2 && $1 ~ /^[0-9a-f]+$/ { print $1; if ($2 != "-" && $2 ~ /^[A-Za-z0-9._-]+$/) print $2 }'
end

@LINES@
