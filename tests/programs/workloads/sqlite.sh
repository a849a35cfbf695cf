# row sqlite: bash {file}
# needs: sqlite3
# short:
exec sqlite3 :memory: <<'SQL'
create table t(a integer, b text, c integer);
with recursive n(i) as (select 1 union all select i+1 from n where i<300000)
insert into t select i, printf('%032d', i*7919 % 300000), i*31 % 1000 from n;
create index ib on t(b);
create index ic on t(c,a);
select count(*), sum(a), min(b), max(b) from t;
select sum(a) from t where c between 100 and 200;
select b from t order by b limit 3 offset 150000;
SQL
