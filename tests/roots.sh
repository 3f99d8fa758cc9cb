# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Clean root directories of Debian and Ubuntu, in which check-fresh and check-packages work; these source it. From the
# environment: DEBIAN_MIRROR, UBUNTU_MIRROR, UBUNTU_KEYRING=FILE; FRESH_DIR, where the directories come to lie; RESULTS.
# The proxies (http_proxy...) and pip's settings (PIP_INDEX_URL, PIP_CERT...) go into them.
PATH=$PATH:/usr/sbin:/sbin

DEBIAN_MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
UBUNTU_MIRROR=${UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
UBUNTU_KEYRING=${UBUNTU_KEYRING:-/usr/share/keyrings/ubuntu-archive-keyring.gpg}
PASSED_ON="http_proxy https_proxy no_proxy HTTP_PROXY HTTPS_PROXY NO_PROXY PIP_INDEX_URL PIP_EXTRA_INDEX_URL
	PIP_TRUSTED_HOST PIP_PROXY PIP_DEFAULT_TIMEOUT PIP_RETRIES"

# begin NAME PROGRAM...: exit with 2 if one is missing; then $top is a new directory for roots, which goes at the end,
# and $logs one for logs.
begin() {
	local name=$1 program
	shift
	for program in debootstrap wget unshare chroot git "$@"; do
		command -v "$program" >/dev/null || { echo "check-$name: $program is missing" >&2; exit 2; }
	done
	[ "$(id -u)" = 0 ] || { echo "check-$name: expected root" >&2; exit 2; }
	top=$(mktemp -d -p "${FRESH_DIR:-/var/tmp}" "cudaw-$name-XXXXXX") || exit 2
	trap 'rm -rf --one-file-system "$top"' EXIT
	trap 'exit 2' INT TERM
	logs=$(realpath -m "${RESULTS:-build/results}/$name")
	mkdir -p "$logs"
}

# inside ROOT USER NAME=VALUE... COMMAND...: run it there, as this user, with no other environment. /dev/pts and
# /dev/shm are new ones. What is mounted there is mounted in a namespace of its own, and goes with its processes.
inside() {
	local root=$1 user=$2 name settings=()
	shift 2
	for name in $PASSED_ON; do
		[ -z "${!name-}" ] || settings+=("$name=${!name}")
	done
	[ -z "${PIP_CERT-}" ] || settings+=("PIP_CERT=/etc/pip-cert.pem")
	# shellcheck disable=SC2016 # for the shell inside
	unshare --mount --pid --fork --kill-child sh -c '
		root=$1 user=$2; shift 2
		mount --bind "$root" "$root" && # unshare(1) in there wants its / to be one
		mount -t proc proc "$root/proc" && mount -t sysfs -o ro sysfs "$root/sys" &&
		mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts "$root/dev/pts" &&
		mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm" &&
		exec chroot --userspec="$user" "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
	' sh "$root" "$user" "${settings[@]}" "$@" </dev/null
}

# bootstrap SUITE PACKAGE,...: the clean root directory of a suite, with these packages, at $top/SUITE. Status 3: its
# archive is not reached; 4: the keyring by which it would be checked is missing.
bootstrap() {
	local suite=$1 packages=$2 root=$top/$1 mirror=$DEBIAN_MIRROR options=() script=
	if [ "$suite" = noble ]; then
		mirror=$UBUNTU_MIRROR
		# shellcheck disable=SC2054 # the comma is debootstrap's
		options=(--components=main,universe --keyring="$UBUNTU_KEYRING")
		# All of Ubuntu's suites have one script; an older debootstrap lacks this one's name for it.
		script=gutsy
	fi
	wget -q --spider --tries=2 --timeout=20 "$mirror/dists/$suite/Release" || return 3
	[ "$suite" != noble ] || [ -e "$UBUNTU_KEYRING" ] || {
		echo "the keyring $UBUNTU_KEYRING is missing"
		return 4
	}
	unshare --mount debootstrap --variant=minbase --include="$packages" "${options[@]}" "$suite" "$root" "$mirror" \
		$script || return
	cp /etc/resolv.conf "$root/etc/"
	[ -z "${PIP_CERT-}" ] || cp "$PIP_CERT" "$root/etc/pip-cert.pem"
}
