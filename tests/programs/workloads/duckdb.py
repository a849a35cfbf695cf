# row duckdb: {python} -I {file}
# needs: python:duckdb
import duckdb

base = duckdb.connect(":memory:", config={"threads": 4})
base.execute("""create table t as select i, i * 7919 % 100003 as k, 'name ' || (i % 50000) as name
                from range(2000000) r(i)""")
print(base.execute("select count(*), sum(i), min(name), max(name) from t where k % 3 = 1").fetchall())
print(base.execute("""select name, sum(a.i) s, count(*) from t a join (select k, max(i) m from t group by k) b
                      on a.k = b.k where a.i < b.m group by name order by s desc, name limit 3""").fetchall())
print(base.execute("select k, i from t order by k desc, i limit 2 offset 1000000").fetchall())
