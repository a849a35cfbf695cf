# row redis with BGSAVE: bash {file}
# needs: redis-server redis-cli
# Fills it, saves in a child while it is written to, and starts a second one on what was saved.
start() {
    redis-server --port 0 --unixsocket "$PWD/socket" --dir "$PWD" --save "" --enable-debug-command local --daemonize no --loglevel warning >>log 2>&1 &
    server=$!
    until redis-cli -s socket ping >answer 2>&1 && grep -q PONG answer; do
        kill -0 $server || { echo "the server has ended"; tail -3 log >&2; exit 1; }
    done
}
ask() { redis-cli -s socket "$@"; }
saved() { until ask info persistence | grep -q rdb_bgsave_in_progress:0; do :; done; }
start
ask debug populate 30000 key 3000
ask eval 'for i = 1, 2000 do redis.call("set", "own" .. i, string.rep(i, 30)) end return redis.call("dbsize")' 0
ask bgsave
ask eval 'for i = 1, 2000 do redis.call("set", "own" .. i, string.rep(i, 31)) end return 1' 0
saved
ask info persistence | grep -c rdb_last_bgsave_status:ok
ask debug digest
ask bgsave
saved
ask shutdown nosave
wait $server
echo "status $?"
start
ask dbsize
ask debug digest
ask shutdown nosave
wait $server
