#!/bin/busybox sh
# SPDX-License-Identifier: BSD-2-Clause
#
# Init of a guest: mounts its root file system read-only, and starts the agent in it. /settings sets
# CHECKOUT, the folder to mount the checkout at (empty: none), PYTHON, the agent's interpreter, and
# PORT, the name of its virtio port.

fail()
{
	echo "guest: $*"
	/bin/busybox poweroff -f
}

/bin/busybox mkdir -p /bin /proc /sys /dev /host
/bin/busybox --install -s /bin
export PATH=/bin
. /settings
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev || fail "no devtmpfs"
exec >/dev/console 2>&1
for module in /modules/*.ko; do
	[ ! -e "$module" ] || insmod "$module" || fail "cannot load $module"
done

share="-t 9p -o ro,trans=virtio,version=9p2000.L,msize=512000,cache=loose"
mount $share root /host || fail "cannot mount the root"
[ -z "$CHECKOUT" ] || mount $share checkout "/host$CHECKOUT" || fail "cannot mount the checkout"
mount -t tmpfs run /host/run || fail "the root has no /run"
mkdir -p /host/run/tmp /dev/pts /dev/shm
mv /guest /host/run/guest
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t debugfs debug /sys/kernel/debug
for folder in dev proc sys; do
	mount --move "/$folder" "/host/$folder" || fail "the root has no /$folder"
done
# Programs that the root may lack, last in the agent's PATH.
mkdir /host/run/guest/bin
cp /bin/busybox /host/run/guest/bin
chroot /host /run/guest/bin/busybox --install -s /run/guest/bin

chroot /host "$PYTHON" -I -B /run/guest/agent.py "$PORT"
fail "the agent ended"
