# A kernel without UFFDIO_MOVE: pages are copied instead, and asking for MOVE is refused.

. /guest/load.sh
LOAD_MB=64
BUDGET=16M

id="case=copy side=userswap cpu=0"
userswap run --ram $BUDGET --transfer move -- /bin/numa-guest-load 1 0 >/tmp/refusal 2>&1 </dev/null
show refusal $id status=$? -- cat /tmp/refusal

path=$(ls -d /dev/nvme*n1 | head -n 1)
mkswap $path >/dev/null
start 0 userswap run --ram $BUDGET --swap $path --stats /tmp/stats \
    -- /bin/numa-guest-load $LOAD_MB 0
order write && order verify
finish
show stats $id -- cat /tmp/stats

# Two writers at random: their pages leave by the block, whose pages are of the nodes on which they run.
rm -f /tmp/stats
timeout 400 userswap run --ram $BUDGET --swap $path --stats /tmp/stats -- \
    userswap usemem -q -t 2 --random --random-seed 1 -j 4096 -r 1 32m >/tmp/out 2>&1 </dev/null
show scattered $id status=$? -- cat /tmp/stats /tmp/out
