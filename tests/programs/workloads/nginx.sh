# row nginx: bash {file}
# needs: nginx python3
# Large bodies in memory, sent on by one server to another; as root its worker drops to nobody.
cat >conf <<CONF
daemon off; worker_processes 1; pid $PWD/pid; error_log $PWD/log;
$([ "$(id -u)" != 0 ] || echo 'user nobody nogroup;')
events { worker_connections 64; }
http {
    access_log off; client_max_body_size 64m; client_body_buffer_size 16m; client_body_in_single_buffer on;
    client_body_temp_path $PWD/body; proxy_temp_path $PWD/proxy; fastcgi_temp_path $PWD/f; uwsgi_temp_path $PWD/u;
    scgi_temp_path $PWD/s;
    server { listen unix:$PWD/front; location / { proxy_pass http://unix:$PWD/back; proxy_buffer_size 1m; proxy_buffers 16 1m;
        proxy_busy_buffers_size 4m; } }
    server { listen unix:$PWD/back; root $PWD/dav; location / { dav_methods PUT; create_full_put_path on; } }
}
CONF
mkdir dav body proxy f u s; chmod 777 . dav body proxy f u s
nginx -c "$PWD/conf" -p "$PWD" 2>>said &
server=$!
until [ -S front ] && [ -S back ]; do kill -0 $server 2>/dev/null || { echo "the server has ended"; cat said >&2; exit 1; }; done
python3 - <<'PYTHON'
import hashlib, http.client, socket, threading

class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("front")

def body(n):
    return hashlib.sha256(str(n).encode()).digest() * (1 << 18)

answers = [None] * 12
opened = threading.Barrier(len(answers))

def exchange(n):
    try:
        link = Local("local", timeout=100)
        data = body(n)
        link.putrequest("PUT", f"/{n}")
        link.putheader("Content-Length", str(len(data)))
        link.endheaders()
        link.send(data[:-1])
        opened.wait(100)
        link.send(data[-1:])
        first = link.getresponse()
        first.read()
        link.request("GET", f"/{n}")
        answer = link.getresponse()
        answers[n] = (first.status, answer.status, answer.read() == data)
    except OSError as error:
        answers[n] = f"failed: {error}"

threads = [threading.Thread(target=exchange, args=(n,)) for n in range(len(answers))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(answers)
PYTHON
kill -QUIT $server
wait $server
echo "status $?"
cat said >&2
grep -E 'exited on signal|userswap' log >&2
true
