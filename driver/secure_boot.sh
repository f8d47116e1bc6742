#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Says how to enroll the key that DKMS signs modules with, and ends with 0, if Secure Boot is on: then
# the kernel loads only what is signed with a key that the machine's owner has enrolled. Otherwise, or
# if that has been done, it ends with 1.
set -e

command -v mokutil >/dev/null || exit 1
mokutil --sb-state 2>/dev/null | grep -q "SecureBoot enabled" || exit 1

# Where DKMS has the key's certificate, unless its settings, which are shell scripts, name another.
case $(sed -n 's/^ID=//p' "${DESTDIR:-}/etc/os-release" 2>/dev/null) in
ubuntu) mok_certificate=/var/lib/shim-signed/mok/MOK.der ;;
*) mok_certificate=/var/lib/dkms/mok.pub ;;
esac
kernelver=${KERNEL:-$(uname -r)}
for settings in "${DESTDIR:-}"/etc/dkms/framework.conf "${DESTDIR:-}"/etc/dkms/framework.conf.d/*.conf; do
	[ ! -f "$settings" ] || . "$settings"
done

if mokutil --test-key "$mok_certificate" 2>/dev/null | grep -q "is already"; then
	exit 1
fi
cat <<END
peerdma: Secure Boot is on, and the kernel does not know DKMS's key. Enroll it once:
  1. mokutil --import $mok_certificate   (asks for a password, to be repeated below)
  2. reboot; in the blue screen: Enroll MOK, Continue, Yes, the password
  3. modprobe peerdma
END
