#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# install.sh [remove]: installs the driver by DKMS, which builds it again for every new kernel,
# and the udev rule that lets users open the boards; or removes both. Needs root.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' "$here/dkms.conf")
source=${DESTDIR:-}/usr/src/peerdma-$version
rules=${DESTDIR:-}/etc/udev/rules.d/70-peerdma.rules

say()
{
	echo "peerdma: $*"
}

fail()
{
	say "$@" >&2
	exit 1
}

remove()
{
	dkms remove "peerdma/$version" --all || true
	rm -rf "$source" "$rules"
	udevadm control --reload
	say "removed; a module that is loaded stays until: modprobe -r peerdma"
}

check()
{
	missing=
	for program in dkms make gcc udevadm modprobe; do
		command -v "$program" >/dev/null || missing="$missing $program"
	done
	[ -z "$missing" ] || fail "missing:$missing. Debian, Ubuntu: apt-get install dkms build-essential kmod udev"
	[ "$(id -u)" = 0 ] || fail "only root can install a driver: sudo make driver-install"
	kernel=${KERNEL:-$(uname -r)}
	[ -e "${DESTDIR:-}/lib/modules/$kernel/build/Makefile" ] ||
		fail "no headers of kernel $kernel. Debian, Ubuntu: apt-get install linux-headers-$kernel"
}

install_source()
{
	rm -rf "$source"
	mkdir -p "$source" "$(dirname "$rules")"
	cp "$here"/*.[ch] "$here"/conftest.sh "$here"/Makefile "$here"/dkms.conf "$source"
	mkdir "$source/symbols"
	cp "$here/symbols/nvidia.c" "$here/symbols/Makefile" "$source/symbols"
	# What a build in that folder left is for one kernel only.
	rm -f "$source"/*.mod.c "$source"/compat_probes.h
	cp "$here/70-peerdma.rules" "$rules"
}

# On: the kernel loads only what is signed with a key that the machine's owner has enrolled.
secure_boot()
{
	command -v mokutil >/dev/null && mokutil --sb-state 2>/dev/null | grep -q "SecureBoot enabled"
}

# The certificate of the key that dkms signs with, unless /etc/dkms/framework.conf names another one.
certificate()
{
	case $(sed -n 's/^ID=//p' "${DESTDIR:-}/etc/os-release" 2>/dev/null) in
	ubuntu) echo /var/lib/shim-signed/mok/MOK.der ;;
	*) echo /var/lib/dkms/mok.pub ;;
	esac
}

load()
{
	if modprobe peerdma; then
		say "installed and loaded; boards: $(ls /dev/picoevb* 2>/dev/null | tr '\n' ' ')"
		return
	fi
	secure_boot || fail "built, but the kernel does not load it: see dmesg"
	cat <<-END
		peerdma: built, but Secure Boot is on, and the kernel does not know DKMS's key. Enroll it once:
		  1. mokutil --import $(certificate)   (asks for a password, to be repeated below)
		  2. reboot; in the blue screen: Enroll MOK, Continue, Yes, the password
		  3. modprobe peerdma
	END
	exit 1
}

case ${1:-install} in
remove)
	remove
	;;
install)
	check
	dkms remove "peerdma/$version" --all >/dev/null 2>&1 || true
	install_source
	dkms add "peerdma/$version"
	dkms build "peerdma/$version" -k "$kernel" || fail "the build failed: see /var/lib/dkms/peerdma/$version/build/make.log"
	dkms install "peerdma/$version" -k "$kernel"
	udevadm control --reload
	load
	;;
*)
	fail "usage: install.sh [remove]"
	;;
esac
