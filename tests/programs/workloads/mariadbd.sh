# row mariadbd: bash {file}
# needs: mariadbd mariadb mariadb-install-db
# As root it drops to its user after its start, as an administrator would have it.
if [ "$(id -u)" = 0 ]; then user=mysql; chown mysql . ; else user=$(id -u); fi
data=$PWD/data
mariadb-install-db --no-defaults --user="$user" --datadir="$data" --auth-root-authentication-method=normal --skip-test-db \
    >log 2>&1 || { echo "the installation failed"; tail -5 log >&2; exit 1; }
as=(); [ "$user" != mysql ] || as=(--user=mysql)
mariadbd --no-defaults "${as[@]}" --datadir="$data" --socket="$PWD/socket" --skip-networking --pid-file="$PWD/pid" \
    --innodb-buffer-pool-size=128M --tmp-table-size=512M --max-heap-table-size=512M --innodb-flush-log-at-trx-commit=0 \
    --sort-buffer-size=64M --join-buffer-size=64M >>log 2>&1 &
server=$!
sql() { mariadb --no-defaults -u root -S "$PWD/socket" -N "$@"; }
until sql -e 'select 1' >/dev/null 2>&1; do
    kill -0 $server 2>/dev/null || { echo "the server has ended"; tail -5 log >&2; exit 1; }
done
sql <<'SQL'
create database d; use d;
create table t (primary key (i)) engine=innodb as select seq as i, seq * 7919 % 100003 as k, md5(seq) as name from seq_1_to_300000;
create table m engine=memory as select * from t;
select count(distinct name), max(name) from t;
select k, i from m order by name limit 1 offset 150000;
select count(*), sum(a.i + b.i) from t a join t b on a.i = b.i where a.k > 5;
select sum(k), count(*) from m where i % 7 = 3;
SQL
mariadb-admin --no-defaults -u root -S "$PWD/socket" shutdown
wait $server
echo "status $?"
grep -iE 'signal|userswap' log >&2
true
