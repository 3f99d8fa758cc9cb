#compdef cudaw cudawd
# zsh completion of cudaw(1) and cudawd(8). Written from their help texts.

_cudaw_jobs() {
	local -a jobs
	jobs=(${(f)"$(
		cudaw ps --columns id,name 2>/dev/null |
		awk 'NF <= 2 && $1 ~ /^[0-9a-f]+$/ { print $1; if ($2 != "-" && $2 ~ /^[A-Za-z0-9._-]+$/) print $2 }'
	)"})
	compadd -a jobs
}

_cudaw_of() {
	case $1 in
@CASES@
	esac
}

_cudaw() {
	local -a summaries
	summaries=(
		@COMMANDS@
	)
	if [[ $service == cudawd ]]; then
		_cudaw_of cudawd
	elif ((CURRENT == 2)); then
		_describe command summaries
	else
		local command="cudaw $words[2]"
		shift words
		((CURRENT--))
		_cudaw_of $command
	fi
}

_cudaw "$@"
