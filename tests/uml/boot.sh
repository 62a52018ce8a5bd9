#!/bin/bash
# Runs a program under a Linux kernel with SCSI drivers (sg, st, ch, iSCSI initiator) where the machine's own has none: Debian's
# user-mode Linux, one process of an ordinary user space. The machine's files are seen read-only; /mnt is empty and writable.
#   boot.sh DIR PROGRAM [ARGUMENT]...      DIR keeps what is downloaded and built
# Prints what the program prints and ends with its exit code; 99: the kernel cannot be had or did not start the program
# (see DIR/share/console.log); 98: the program was started and did not end.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
dir=$(cd "$1" && pwd)
shift
mkdir -p "$dir/debs" "$dir/share" "$dir/modules/lib/modules"
if [ ! -d "$dir/x/usr/lib/uml" ]; then
    (cd "$dir/debs" && apt-get -qq download user-mode-linux open-iscsi libopeniscsiusr libisns0) || {
        echo "the packages cannot be downloaded" >&2
        exit 99
    }
    for package in "$dir"/debs/*.deb; do dpkg -x "$package" "$dir/x"; done
fi
version=$(ls "$dir/x/usr/lib/uml/modules")
ln -sfn "$dir/x/usr/lib/uml/modules/$version" "$dir/modules/lib/modules/$version"
depmod -b "$dir/modules" "$version"
cc -O2 -w -shared -fPIC -o "$dir/xstate.so" "$here/xstate.c" -ldl
cat > "$dir/init" <<INIT
#!/bin/bash
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/ LD_LIBRARY_PATH=$dir/x/usr/lib/x86_64-linux-gnu TMPDIR=/mnt
export ISCSISTART=$dir/x/sbin/iscsistart
mount -t proc proc /proc
mount -t sysfs sys /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mount -t tmpfs run /run
mount -t tmpfs tmp /mnt
mkdir -p /mnt/share /run/lock
mount -t hostfs none /mnt/share -o $dir/share
ip link set lo up
for module in scsi_mod st sg ch iscsi_tcp; do modprobe -d $dir/modules \$module; done
cd /mnt
$(printf '%q ' "$@") >/mnt/share/output 2>&1
echo \$? >/mnt/share/code
sync
echo o >/proc/sysrq-trigger
INIT
chmod +x "$dir/init"
rm -f "$dir/share/code" "$dir/share/output"
LD_PRELOAD="$dir/xstate.so" timeout "${LIMIT:-150}" "$dir/x/usr/bin/linux.uml" rootfstype=hostfs rootflags=/ ro mem=1024M \
    init="$dir/init" con=null con0=null,fd:1 umid="thermo$$" uml_dir="$dir/run/" </dev/null >"$dir/share/console.log" 2>&1 || true
[ ! -e "$dir/share/output" ] || cat "$dir/share/output"
[ ! -e "$dir/share/code" ] || exit "$(cat "$dir/share/code")"
[ ! -e "$dir/share/output" ] || exit 98
exit 99
