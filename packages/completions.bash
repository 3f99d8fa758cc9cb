# bash completion of cudaw(1) and cudawd(8). Written from their help texts.

declare -gA _cudaw_first _cudaw_options _cudaw_values
@TABLES@

_cudaw_jobs() {
	"${COMP_WORDS[0]}" ps --columns id,name 2>/dev/null |
		awk 'NF <= 2 && $1 ~ /^[0-9a-f]+$/ { print $1; if ($2 != "-" && $2 ~ /^[A-Za-z0-9._-]+$/) print $2 }'
}

# The words of a kind that begin as the one under the cursor does.
_cudaw_offer() {
	case $1 in
	words:*) COMPREPLY=($(compgen -W "${1#words:}" -- "$2")) ;;
	jobs) COMPREPLY=($(compgen -W "$(_cudaw_jobs)" -- "$2")) ;;
	programs) COMPREPLY=($(compgen -c -- "$2")) ;;
	directories) compopt -o filenames && COMPREPLY=($(compgen -d -- "$2")) ;;
	files) compopt -o default ;;
	esac
}

# The kind of the argument number $2 of the command $1; the last one comes again.
_cudaw_argument() {
	local number=$2
	while ((number > 0)) && [ -z "${_cudaw_values["$1 $number"]+is}" ]; do ((number--)); done
	echo "${_cudaw_values["$1 $number"]-}"
}

_cudaw() {
	local word=${COMP_WORDS[COMP_CWORD]} name=${1##*/} at=1 number=0 only= given last
	COMPREPLY=()
	local key=$name
	if [ -n "${_cudaw_first[$name]+is}" ]; then
		((COMP_CWORD > 1)) || { _cudaw_offer "words:${_cudaw_first[$name]}" "$word"; return; }
		[ "${COMP_WORDS[1]}" != help ] || { _cudaw_offer "words:${_cudaw_first[$name]} settings" "$word"; return; }
		key="$name ${COMP_WORDS[1]}" at=2
	fi
	for ((; at < COMP_CWORD; at++)); do
		given=${COMP_WORDS[at]} last=
		case $given in
		=) ;;
		--) only=1 ;;
		-*) [ "$only" ] || last=$given ;;
		*)
			[ "${_cudaw_values["$key 0"]-}" != programs ] || { compopt -o default; return; }
			((number++)) ;;
		esac
		# The next word is its value.
		if [ -n "$last" ] && [ -n "${_cudaw_values["$key $last"]+is}" ]; then
			[ "${COMP_WORDS[at + 1]}" != = ] || ((at++))
			((at++))
			if ((at >= COMP_CWORD)); then
				[ "$word" != = ] || word=
				_cudaw_offer "${_cudaw_values["$key $last"]}" "$word"
				return
			fi
		fi
	done
	if [[ $word == -* && ! $only ]]; then
		_cudaw_offer "words:${_cudaw_options[$key]-}" "$word"
	else
		_cudaw_offer "$(_cudaw_argument "$key" "$number")" "$word"
	fi
}

complete -F _cudaw cudaw cudawd
