# row memcached: bash {file}
# needs: memcached
# As nobody it writes its counters here, too.
chmod 777 .
memcached -u nobody -s "$PWD/socket" -m 200 -t 4 &
server=$!
python3 - <<'Q'
import socket
import time

for _ in range(300):
    try:
        connection = socket.socket(socket.AF_UNIX)
        connection.connect("socket")
        break
    except OSError:
        time.sleep(0.1)
stream = connection.makefile("rwb")


def ask(text):
    stream.write(text)
    stream.flush()
    return stream.readline()


def value(i):
    return (b"v%d" % i) * 400


for i in range(40000):
    assert ask(b"set k%d 0 0 %d\r\n%s\r\n" % (i, len(value(i)), value(i))) == b"STORED\r\n"
for i in range(0, 40000, 3):
    assert ask(b"get k%d\r\n" % i).startswith(b"VALUE")
    assert stream.readline() == value(i) + b"\r\n" and stream.readline() == b"END\r\n"
print("exact")
Q
kill $server
wait $server
echo $?
