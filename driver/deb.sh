#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# deb.sh FOLDER: makes the Debian package peerdma-dkms in FOLDER, which it creates. Needs no root.
set -eu
umask 022

here=$(cd "$(dirname "$0")" && pwd)
folder=${1:?usage: deb.sh FOLDER}
version=$(sed -n 's/^PACKAGE_VERSION="\(.*\)"$/\1/p' "$here/dkms.conf")
# By Debian's convention, who builds a package says so in the environment.
maintainer="${DEBFULLNAME:-peerdma} <${DEBEMAIL:-$(id -un)@$(uname -n)}>"
command -v dpkg-deb >/dev/null || {
	echo "peerdma: missing: dpkg-deb, which Debian and Ubuntu have; elsewhere: driver/install.sh" >&2
	exit 1
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
share=$root/usr/share

# place FILE FOLDER: copies a file to a folder of the package, with the version filled in
place()
{
	mkdir -p "$2"
	sed "s/@VERSION@/$version/g" "$here/$1" >"$2/$(basename "$1")"
}

DESTDIR=$root sh "$here/install.sh" source
place 70-peerdma.rules "$root/usr/lib/udev/rules.d"
place secure_boot.sh "$share/peerdma-dkms"
place peerdma.4 "$share/man/man4"
place debian/copyright "$share/doc/peerdma-dkms"
place debian/postinst "$root/DEBIAN"
place debian/prerm "$root/DEBIAN"
ln -s peerdma.4.gz "$share/man/man4/picoevb.4.gz"

cat >"$share/doc/peerdma-dkms/changelog" <<END
peerdma-dkms ($version) unstable; urgency=medium

  * Release $version of the driver: CHANGELOG.md in its repository.

 -- $maintainer  $(date -R)
END
gzip -9n "$share/man/man4/peerdma.4" "$share/doc/peerdma-dkms/changelog"

cat >"$root/DEBIAN/control" <<END
Package: peerdma-dkms
Version: $version
Architecture: all
Section: kernel
Priority: optional
Maintainer: $maintainer
Depends: dkms
Suggests: mokutil
Description: driver for FPGA boards that read and write GPU memory (DKMS)
 The kernel driver of peerdma, an open reference design of a PCIe card that
 reads and writes the memory of GPUs and of processes by itself: /dev/picoevb.
 It takes the requests of NVIDIA's driver for the PicoEVB board, code for code.
 .
 DKMS builds the modules for each kernel with the headers of that kernel:
 linux-headers-amd64 on Debian, linux-headers-generic on Ubuntu. The module for
 memory of NVIDIA's discrete GPUs is built where the source of NVIDIA's open
 kernel modules is installed.
 .
 With Secure Boot on, the installation says how to enroll the key that DKMS
 signs the modules with.
END
(cd "$root" && find usr -type f -exec md5sum {} +) >"$work/md5sums"
mv "$work/md5sums" "$root/DEBIAN"

# Whatever the modes of the checkout's files are.
chmod -R u=rwX,go=rX "$root"
chmod 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm" "$share/peerdma-dkms/secure_boot.sh"
mkdir -p "$folder"
dpkg-deb --root-owner-group --build "$root" "$folder"
