"""A database in memory on four threads: a table, groups, the table joined with itself. Argument: rows."""
import sys

import duckdb
from parts import part

count = int(sys.argv[1])
# The memory is named because duckdb would take a control group's limit for the machine's.
base = duckdb.connect(":memory:", config={"threads": 4, "memory_limit": "64GB"})


def show(name, query):
    print(name, base.execute(query).fetchall())


base.execute(f"""create table t as select i, i * 7919 % 1000003 as k, i * 2654435761 % 4294967291 as v,
                 'name ' || (i % 50000) as name from range({count}) r(i)""")
part("create")
show("groups", """select count(*), sum(s), sum(c), min(name), max(name)
                  from (select name, sum(v) s, count(*) c from t group by name)""")
show("keys", "select count(*), sum(hash(k, s) % 1000003) from (select k, sum(v) s from t group by k)")
part("group")
show("joined", f"""select count(*), sum(hash(a.i, b.v, b.name) % 1000003), min(b.name), max(b.v)
                  from t a join t b on a.v % {count} = b.i""")
part("join")
