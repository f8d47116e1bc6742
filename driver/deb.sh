#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# deb.sh FOLDER: makes the Debian packages peerdma-dkms, the driver, and libpeerdma-dev, headers for
# programs in C and C++, in FOLDER, which it creates. Needs no root.
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

# place FILE FOLDER: copies a file to a folder of the package, with the version filled in
place()
{
	mkdir -p "$2"
	sed "s/@VERSION@/$version/g" "$1" >"$2/$(basename "$1")"
}

# package NAME SECTION FIELDS: makes the package of what is below $root, from a description at stdin
package()
{
	doc=$root/usr/share/doc/$1
	place "$here/debian/copyright" "$doc"
	cat >"$doc/changelog" <<-END
		$1 ($version) unstable; urgency=medium

		  * Release $version: CHANGELOG.md in its repository.

		 -- $maintainer  $(date -R)
	END
	gzip -9n "$doc/changelog"
	mkdir -p "$root/DEBIAN"
	{
		cat <<-END
			Package: $1
			Version: $version
			Architecture: all
			Section: $2
			Priority: optional
			Maintainer: $maintainer
			$3
		END
		cat
	} >"$root/DEBIAN/control"
	(cd "$root" && find usr -type f -exec md5sum {} +) >"$work/md5sums"
	mv "$work/md5sums" "$root/DEBIAN"
	# Whatever the modes of the checkout's files are.
	find "$root" -type f -exec chmod u=rw,go=r {} +
	find "$root" -type d -exec chmod u=rwx,go=rx {} +
	chmod -f 755 "$root/DEBIAN/postinst" "$root/DEBIAN/prerm" \
		"$root/usr/share/peerdma-dkms/secure_boot.sh" || true
	dpkg-deb --root-owner-group --build "$root" "$folder"
}

mkdir -p "$folder"

root=$work/driver
share=$root/usr/share
DESTDIR=$root sh "$here/install.sh" source
place "$here/70-peerdma.rules" "$root/usr/lib/udev/rules.d"
place "$here/secure_boot.sh" "$share/peerdma-dkms"
place "$here/peerdma.4" "$share/man/man4"
gzip -9n "$share/man/man4/peerdma.4"
ln -s peerdma.4.gz "$share/man/man4/picoevb.4.gz"
place "$here/debian/postinst" "$root/DEBIAN"
place "$here/debian/prerm" "$root/DEBIAN"
package peerdma-dkms kernel 'Depends: dkms
Suggests: mokutil' <<'END'
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

root=$work/headers
for header in "$here/../host/peerdma/include/peerdma"/*; do
	place "$header" "$root/usr/include/peerdma"
done
place "$here/debian/peerdma.pc" "$root/usr/share/pkgconfig"
package libpeerdma-dev libdevel 'Depends: libc6-dev | libc-dev, linux-libc-dev
Recommends: peerdma-dkms' <<'END'
Description: FPGA boards that read and write GPU memory, for C and C++
 Headers for programs that use boards of peerdma, an open reference design of a
 PCIe card that reads and writes the memory of GPUs and of processes by itself.
 There is nothing to link against but threads.
 .
 peerdma.h is for C99 and later, peerdma.hpp for C++11 and later, device.cuh for
 kernels of CUDA that start transfers themselves.
END
