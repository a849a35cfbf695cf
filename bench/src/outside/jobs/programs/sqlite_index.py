"""A database in memory: rows, two indexes, a look at all of it. Argument: rows."""
import sqlite3
import sys

from parts import part

count = int(sys.argv[1])
base = sqlite3.connect(":memory:")


def show(query):
    print(base.execute(query).fetchall())


base.execute("create table t(a integer primary key, b text, c integer)")
rows = ((i, f"{i * 7919 % count:0800d}", i * 31 % 1000) for i in range(count))
base.executemany("insert into t values(?, ?, ?)", rows)
part("insert")
base.execute("create index text_of_t on t(b)")
base.execute("create index number_of_t on t(c, a)")
part("index")
show("select count(*), sum(a), min(b), max(b) from t where c between 100 and 300")
show(f"select a, b from t order by b limit 3 offset {count // 2}")
part("select")
show("pragma integrity_check")
part("check")
