# row postgres: bash {file}
# needs: initdb postgres psql setpriv
# A server that runs as an ordinary user, as it demands, with large sorts and joins in its backends.
become=()
[ "$(id -u)" != 0 ] || { become=(setpriv --reuid=65534 --regid=65534 --clear-groups); chown 65534:65534 .; }
data=$PWD/data
"${become[@]}" initdb -D "$data" -A trust -U postgres --no-sync -E UTF8 --locale C >log 2>&1 || { echo "initdb failed"; tail -5 log >&2; exit 1; }
"${become[@]}" postgres -D "$data" -c listen_addresses= -k "$PWD" -c work_mem=256MB -c shared_buffers=16MB \
    -c fsync=off -c max_parallel_workers_per_gather=2 -c hash_mem_multiplier=4 >>log 2>&1 &
server=$!
sql() { psql -h "$PWD" -U postgres -At -v ON_ERROR_STOP=1 postgres; }
until echo 'select 1' | sql >/dev/null 2>&1; do
    kill -0 $server 2>/dev/null || { echo "the server has ended"; tail -5 log >&2; exit 1; }
done
sql <<'SQL'
create table t as select i, i * 7919::bigint % 100003 as k, md5(i::text) as name from generate_series(1, 400000) i;
select count(distinct name), max(name) from t;
select k, i from t order by name limit 1 offset 200000;
select count(*), sum(a.i + b.i) from t a join t b on a.name = b.name where a.k > 5;
select length(string_agg(name, ',' order by i)) from t;
SQL
for n in 1 2; do (echo "select sum(i), min(name) from (select i, name from t order by name, i) s" | sql >out.$n) & jobs="$jobs $!"; done
wait $jobs
cat out.1 out.2
kill -INT $server
wait $server
echo "status $?"
grep -E 'FATAL|PANIC|signal|userswap' log | grep -v 'starting up' >&2
true
