#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Run an MPI program over throttled links: network namespaces that stand for
# machines, joined by a bridge.
#
#     netns.sh [OPTION ...] [--] PROGRAM [ARGUMENT ...]
#
#     --nodes N       namespaces (4)
#     --slots N       ranks in each (1); those share a fast link
#     --rate RATE     of every link, each way, as tc has it (100mbit; above
#                     200mbit TCP's own work shows on two CPUs)
#     --check         only find out whether this works here
#
#        node 0         node 1         node 2          ranks 0..slots-1, ...
#       [eth, tbf]     [eth, tbf]     [eth, tbf]       what leaves a node
#           |              |              |
#       [port, tbf]    [port, tbf]    [port, tbf]      what goes to it
#           `-------- bridge -------------'---------- mpirun
#
# tbf shapes only what a device sends, so there is one at each end.  Ranks are
# started by an orted within each namespace: a rank that was moved there by
# itself would talk to a daemon outside.  Each node has a host name of its own,
# or Open MPI would take them all for one machine.
#
# Needs root, iproute2, openmpi-bin.  Everything it makes is named by its
# process number and removed at the end, also after a signal.  Exit status: that
# of mpirun; 77 where namespaces or root are missing, 2 for a wrong option.
set -u

nodes=4
slots=1
rate=100mbit
check=

fail() { # status, text
    echo "netns.sh: $2" >&2
    exit "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
    --nodes | --slots | --rate)
        [ $# -ge 2 ] || fail 2 "$1 needs a value"
        case $1 in
        --nodes) nodes=$2 ;;
        --slots) slots=$2 ;;
        --rate) rate=$2 ;;
        esac
        shift 2
        ;;
    --check)
        check=1
        shift
        ;;
    --)
        shift
        break
        ;;
    -*) fail 2 "no option $1" ;;
    *) break ;;
    esac
done
case $nodes$slots in
*[!0-9]* | '') fail 2 "--nodes $nodes --slots $slots: these are numbers" ;;
esac
[ "$nodes" -ge 1 ] && [ "$nodes" -le 32 ] ||
    fail 2 "--nodes $nodes: from 1 to 32"
[ -n "$check" ] || [ $# -gt 0 ] || fail 2 "which program?"

[ "$(id -u)" = 0 ] || fail 77 "needs root"
for tool in ip tc mpirun unshare; do
    command -v $tool >/dev/null ||
        fail 77 "no $tool (iproute2, openmpi-bin, util-linux)"
done

# ---- what is made and removed --------------------------------------------

name=gy$$
subnet=10.$((128 + $$ / 256 % 64)).$(($$ % 256))
work=$(mktemp -d) || exit 99
job=

clean() {
    trap '' INT TERM HUP
    if [ -n "$job" ] && kill -TERM "$job" 2>/dev/null; then
        wait "$job"
    fi
    i=0
    while [ $i -lt "$nodes" ]; do
        if [ -e "/run/netns/$name.$i" ]; then
            # An orted that was left behind would keep the namespace.
            for process in $(ip netns pids "$name.$i" 2>/dev/null); do
                kill -9 "$process" 2>/dev/null
            done
            ip netns delete "$name.$i"
        fi
        # The kernel takes a namespace down later, and its link with it.
        [ ! -e "/sys/class/net/$name-$i" ] || ip link delete "$name-$i" 2>/dev/null
        i=$((i + 1))
    done
    [ ! -e "/sys/class/net/$name" ] || ip link delete "$name" type bridge
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# A step that the kernel may refuse.
make() {
    "$@" 2>"$work/said" && return 0
    fail 77 "refused: $*: $(head -n 1 "$work/said")"
}

shape() { # tc command and device
    make "$@" root tbf rate "$rate" burst 64kb latency 100ms
}

make ip link add "$name" type bridge
make ip address add "$subnet.254/24" dev "$name"
make ip link set "$name" up

i=0
while [ $i -lt "$nodes" ]; do
    node=$name.$i
    make ip netns add "$node"
    make ip link add "$name-$i" type veth peer name eth0 netns "$node"
    make ip link set "$name-$i" master "$name" up
    make ip -n "$node" address add "$subnet.$((i + 1))/24" dev eth0
    make ip -n "$node" link set eth0 up
    make ip -n "$node" link set lo up
    shape tc qdisc add dev "$name-$i"
    shape tc -n "$node" qdisc add dev eth0
    echo "$subnet.$((i + 1)) slots=$slots" >>"$work/hosts"
    i=$((i + 1))
done
[ -z "$check" ] || exit 0

# ---- run ------------------------------------------------------------------

# What mpirun takes for ssh: AGENT ADDRESS COMMAND ...
cat >"$work/agent" <<END
#!/bin/sh
address=\$1
shift
i=\$((\${address##*.} - 1))
exec ip netns exec "$name.\$i" unshare -u sh -c '
    hostname "\$1"
    shift
    exec sh -c "\$*"' agent "$name-\$i" "\$@"
END
chmod +x "$work/agent"

program=$(command -v "$1") || fail 2 "no program $1"
case $program in
/*) ;;
*) program=$(pwd)/$program ;;
esac
shift

passed=
for variable in $(env | sed -n 's/^\(GYRE[A-Z_]*\)=.*/\1/p'); do
    passed="$passed -x $variable"
done

# Beside the shell, which would answer no signal before its end.
# shellcheck disable=SC2086
mpirun --allow-run-as-root --oversubscribe --bind-to none \
    --hostfile "$work/hosts" -n $((nodes * slots)) $passed \
    --mca plm rsh --mca plm_rsh_agent "$work/agent" \
    --mca plm_rsh_no_tree_spawn 1 \
    --mca oob_tcp_if_include "$subnet.0/24" \
    --mca btl_tcp_if_include "$subnet.0/24" \
    --mca pml ob1 --mca btl tcp,self --mca mpi_yield_when_idle 1 \
    "$program" "$@" &
job=$!
wait "$job"
code=$?
job=
exit $code
