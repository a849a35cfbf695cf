# Loads pinned to one CPU, first on the kernel's own swap, then under `userswap run` with the same devices
# in the same order: which device fills, with which priorities, and where the resident pages lie.

. /guest/load.sh
LOAD_MB=40
BUDGET=16M
# What each of the other nodes gets, since userswap divides a budget among all nodes.
BUDGET_ELSEWHERE=4M
# After each mebibyte: long enough for a node's reclaimer to take one batch out. The kernel's limit of a
# control group needs no pauses: it stops the load until it has reclaimed.
pause_ms=20
# A disk that is still busy after this many fiftieths of a second never rests.
WRITING_FIFTIETHS_MAX=500

# Their names come in any order: a device is known by its serial number.
for block in /sys/block/nvme*; do
    device=$(tr -d ' ' <"$block/device/serial")
    eval "path_$device=/dev/${block##*/}"
    say device name="$device" node="$(cat "$block/device/numa_node")" path="/dev/${block##*/}"
done

# `use NAME SPEC…`: the devices of a case in the order of their swap-on; a SPEC is a device's name, then
# `:KIBIBYTES` to use only its start, then `,pri=N`.
use() {
    case_name=$1
    shift
    devices= swaps=
    for spec in "$@"; do
        device=${spec%%[:,]*}
        size=$(echo "$spec" | sed -n 's/.*:\([0-9]*\).*/\1/p')
        priority=$(echo "$spec" | sed -n 's/.*,pri=\([0-9]*\)/\1/p')
        devices="$devices $device"
        eval "size_$device=$size priority_$device=$priority path=\$path_$device"
        swaps="$swaps --swap $path${size:+:${size}K}${priority:+,pri=$priority}"
    done
}

kernel_swap_on() {
    for device in $devices; do
        eval "size=\$size_$device priority=\$priority_$device path=\$path_$device"
        mkswap $path $size >/dev/null
        /sbin/swapon ${priority:+-p $priority} $path
    done
}

kernel_swap_off() {
    for path in $(awk '/^\/dev/ { print $1 }' /proc/swaps); do swapoff $path; done
}

# Requests under way are the ninth number of a device's statistics. They outlive the load that made them,
# and must not be counted as the next one's.
is_writing() { awk '$9 > 0 { found = 1 } END { exit !found }' /sys/block/nvme*/stat; }
show_writes() {
    fiftieths=0
    while is_writing && [ $fiftieths -lt $WRITING_FIFTIETHS_MAX ]; do
        usleep 20000
        fiftieths=$((fiftieths + 1))
    done
    show writes $id phase=$1 -- grep . /sys/block/nvme*/stat
}
show_kernel() {
    show_writes $1
    show swaps $id phase=$1 -- cat /proc/swaps
}
show_own() {
    # The reclaimers stop when they have reached their high marks.
    usleep 200000
    show_writes $1
    show status $id phase=$1 -- userswap status $load --json
    show maps $id phase=$1 -- grep -v file= /proc/$load/numa_maps
}

# A load on one CPU with the kernel's swap: `kernel CPU [DEVICE]`; the device is swapped off and on again
# in the middle.
kernel() {
    id="case=$case_name side=kernel cpu=$1"
    show_writes start
    start $1 sh -c 'echo $$ >/cg/load/cgroup.procs; exec "$@"' - numa-guest-load $LOAD_MB 0
    if order write; then
        show_kernel full
        [ -z "$2" ] || kernel_without $1 $2
        order verify
    fi
    finish
}

kernel_without() {
    eval "path=\$path_$2"
    # What comes back is reclaimed by the task that brings it back, on its CPU.
    taskset $(mask_of $1) swapoff $path || say error $id what=swapoff
    show_kernel off
    order write
    show_kernel rewritten
    /sbin/swapon $path || say error $id what=swapon
    show_kernel on
}

# The same under userswap, with most of the budget on the CPU's node.
own() {
    id="case=$case_name side=userswap cpu=$1"
    shares=
    for node in 0 1 2 3; do
        share=$BUDGET_ELSEWHERE
        [ $node != $1 ] || share=$BUDGET
        shares=$shares,$node:$share
    done
    show_writes start
    start $1 userswap run --ram ${shares#,} $swaps -- /bin/numa-guest-load $LOAD_MB $pause_ms
    if order write; then
        show_own full
        [ -z "$2" ] || own_without $2
        order verify
    fi
    finish
}

own_without() {
    eval "path=\$path_$1"
    userswap swapoff $load $path >/tmp/swapoff 2>&1 || show error $id what=swapoff -- cat /tmp/swapoff
    show_own off
    order write
    show_own rewritten
    userswap swapon $load $path >/tmp/swapon 2>&1 || show error $id what=swapon -- cat /tmp/swapon
    show_own on
}

# `on_cpus CPU…`: both sides, a load on each CPU, one after the other.
on_cpus() {
    kernel_swap_on
    for cpu in "$@"; do kernel $cpu; done
    kernel_swap_off
    for cpu in "$@"; do own $cpu; done
}

# `without CPU DEVICE`: both sides, a load on one CPU, and a device that goes and comes back.
without() {
    kernel_swap_on
    kernel $1 $2
    kernel_swap_off
    own $1 $2
}

budget() { userswap set $load ram $1 >/tmp/set 2>&1 || show error $id what=set -- cat /tmp/set; }

# Pages that the kernel has moved to the nodes that use them, since the start.
moved_pages() {
    while read -r name value; do
        [ "$name" != numa_pages_migrated ] || echo "$value"
    done </proc/vmstat
}

# Those of them that the engine of the load has noticed.
noticed_pages() { userswap status $load --json | sed -n 's/.*"numa_pages_migrated": *\([0-9]*\).*/\1/p'; }

# It looks from time to time, and moves what it sees twice: how soon that is depends on what else the host does.
grow_and_shrink() {
    budget 40M
    start_of_attempt=$(moved_pages)
    round=0
    while [ $round -lt 60 ] && { [ $round -lt 8 ] || [ "$(moved_pages)" -lt $((start_of_attempt + 512)) ]; }; do
        order write || break
        round=$((round + 1))
    done
    budget 16M
    usleep 200000
}

# The kernel moves pages to the node that uses them: `migrated CPU`, a load that has outgrown its budget, which then
# grows until all of the load fits, three quarters of it on other nodes, and shrinks again. There is nothing to hold
# against the kernel's swap, whose lists are of the nodes where pages lie.
migrated() {
    id="case=$case_name side=userswap cpu=$1"
    mount -t debugfs debugfs /sys/kernel/debug
    for name in scan_delay_ms scan_period_min_ms scan_period_max_ms; do
        echo 100 >/sys/kernel/debug/sched/numa_balancing/$name
    done
    echo 1 >/proc/sys/kernel/numa_balancing
    LOAD_MB=24
    show_writes start
    start $1 userswap run --ram 0:5M,1:5M,2:5M,3:5M $swaps -- /bin/numa-guest-load $LOAD_MB 0
    order write
    # What leaves by blocks is copied: there would be nothing to notice.
    userswap set $load reclaim_way runs >/tmp/set 2>&1 || show error $id what=set -- cat /tmp/set
    before=$(moved_pages) attempt=0
    while [ $attempt -lt 3 ] && [ "$(noticed_pages)" = 0 ]; do
        attempt=$((attempt + 1))
        grow_and_shrink
    done
    show moved $id pages=$(($(moved_pages) - before)) -- true
    show_own shrunk
    order write && order verify
    show_own rewritten
    finish
    echo 0 >/proc/sys/kernel/numa_balancing
}

mkdir /cg/load
echo +memory >/cg/cgroup.subtree_control
echo $BUDGET >/cg/load/memory.max

use four A B C D
on_cpus 0 1 2 3
use priority A B C D E,pri=5
on_cpus 0
use shared A B C D E
on_cpus 2
use full A B:12288 C D
on_cpus 1
use off A B C D
without 1 B
# Without pauses faults take pages of other nodes while their own reclaims, and those nodes write, too.
pause_ms=0
use hurry A B C D
on_cpus 0
use migrated A B C D
migrated 1
