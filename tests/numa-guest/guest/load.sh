# The load: started on one CPU, by either side, and led by orders.

# Sixty times what an order takes on a quiet host.
WAIT_TENTHS_MAX=600
mkfifo /tmp/orders
exec 3<>/tmp/orders

# The hexadecimal mask of one CPU, for taskset.
mask_of() { printf %x $((1 << $1)); }

# `start CPU COMMAND…`: runs it in the background, with its process in $load.
start() {
    : >/tmp/out
    answers=0
    cpu=$1
    shift
    taskset "$(mask_of "$cpu")" "$@" </tmp/orders >/tmp/out 2>&1 &
    load=$!
}

# `order WORD`: has the load do it and waits for its answer.
order() {
    echo "$1" >&3
    answers=$((answers + 1))
    tenths=0
    until [ "$(grep -c -E '^(written|verified|wrong) ' /tmp/out)" -ge $answers ]; do
        if [ $tenths -ge $WAIT_TENTHS_MAX ] || ! kill -0 $load 2>/dev/null; then
            show error $id what="$1" -- tail -n 3 /tmp/out
            return 1
        fi
        usleep 100000
        tenths=$((tenths + 1))
    done
    [ "$1" != verify ] || say data $id answer="$(tail -n 1 /tmp/out | cut -d ' ' -f 1)"
}

# Ends the load: by an order, or by force if it did not answer the last one.
finish() {
    echo end >&3
    [ $tenths -lt $WAIT_TENTHS_MAX ] || kill -9 $load
    wait $load
    say finish $id status=$? seconds="$(seconds)"
}
