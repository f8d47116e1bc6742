#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# install.sh [remove]: installs the driver by DKMS, which builds it again for every new kernel,
# and the udev rule that lets users open the boards; or removes both. Needs root.
# install.sh source: only copies the sources to where DKMS looks for them below DESTDIR.
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

# The package has the same files.
no_package()
{
	[ ! -e "${DESTDIR:-}/var/lib/dpkg/info/peerdma-dkms.list" ] ||
		fail "the package peerdma-dkms is installed; to remove it: apt-get remove peerdma-dkms"
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
	mkdir -p "$source"
	cp "$here"/*.h "$here"/conftest.sh "$here"/Makefile "$here"/dkms.conf "$source"
	for layer in $(sed -n 's/^layers := //p' "$here/Makefile") providers; do
		mkdir "$source/$layer"
		cp "$here/$layer"/*.[ch] "$source/$layer"
	done
	mkdir "$source/symbols"
	cp "$here/symbols/nvidia.c" "$here/symbols/Makefile" "$source/symbols"
	# What a build in that folder left is for one kernel only.
	rm -f "$source"/compat_probes.h
}

install_rules()
{
	mkdir -p "$(dirname "$rules")"
	cp "$here/70-peerdma.rules" "$rules"
	udevadm control --reload
}

load()
{
	if modprobe peerdma; then
		say "installed and loaded; boards: $(ls /dev/picoevb* 2>/dev/null | tr '\n' ' ')"
		return
	fi
	sh "$here/secure_boot.sh" || fail "built, but the kernel does not load it: see dmesg"
	exit 1
}

case ${1:-install} in
source)
	install_source
	;;
remove)
	no_package
	remove
	;;
install)
	no_package
	check
	dkms remove "peerdma/$version" --all >/dev/null 2>&1 || true
	install_source
	dkms add "peerdma/$version"
	dkms build "peerdma/$version" -k "$kernel" || fail "the build failed: see /var/lib/dkms/peerdma/$version/build/make.log"
	dkms install "peerdma/$version" -k "$kernel"
	install_rules
	load
	;;
*)
	fail "usage: install.sh [remove | source]"
	;;
esac
