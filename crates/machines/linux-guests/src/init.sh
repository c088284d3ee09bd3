#!/bin/busybox sh
# The first process of a guest: brings the network up; then agent.sh, which follows, answers commands.
/bin/busybox mkdir -p /proc /sys /dev /run /tmp /root /bin /sbin /usr/bin /usr/sbin
/bin/busybox --install -s /bin
export PATH=/bin:/usr/bin:/sbin:/usr/sbin HOME=/root
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts && mount -t devpts pts /dev/pts 2>/dev/null
# What the host carried there stays to be seen.
for folder in tmp run; do
  [ -n "$(ls /$folder)" ] || mount -t tmpfs $folder /$folder
done

for word in $(cat /proc/cmdline); do
  case $word in
    ringway.name=*) name=${word#*=} ;;
    ringway.agent=*) agent=/dev/${word#*=} ;;
    ringway.eth*) interfaces="$interfaces ${word#ringway.}" ;;
    ringway.probe) echo "ringway: guest code runs" >/dev/console; poweroff -f ;;
  esac
done
hostname "${name:-guest}"
stty -F "$agent" raw -echo -onlcr 2>/dev/null
exec 3<>"$agent"

for module in /modules/*.ko; do insmod "$module" || echo "ringway: $module does not load"; done
ip link set lo up
# NAME=ADDRESS,MAC,QUEUES with - for what is not given
for word in $interfaces; do
  device=${word%%=*}
  IFS=, read -r address mac queues <<END
${word#*=}
END
  # The interface is there as soon as its driver is; a TAP of User-Mode Linux is called vec0.
  vector=vec${device#eth} tries=0
  until [ -e /sys/class/net/$device ] || [ -e /sys/class/net/$vector ] || [ $tries -ge 100 ]; do
    tries=$((tries + 1)); usleep 50000
  done
  [ -e /sys/class/net/$vector ] && ip link set $vector name $device
  if [ ! -e /sys/class/net/$device ]; then echo "ringway: $device did not appear"; continue; fi
  [ "$mac" != - ] && ip link set $device address "$mac"
  [ "$queues" -gt 1 ] && ethtool -L $device combined "$queues"
  [ "$address" != - ] && ip address add "$address" dev $device
  ip link set $device up
done
[ -x /usr/bin/iperf3 ] && iperf3 --server --daemon >/dev/null 2>&1

[ -e /script ] && sh /script &

run=/run
