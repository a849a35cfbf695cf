# row chromium, headless, no zygote: bash {file} --no-sandbox --no-zygote
# row chromium, headless, no sandbox: bash {file} --no-sandbox
# needs: chromium
cat >page.html <<'HTML'
<html><body><p id=out></p><canvas id=c width=1500 height=1500></canvas><script>
const blocks = [];
for (let i = 0; i < 60; i++) { const b = new Uint8Array(1 << 20); for (let j = 0; j < b.length; j += 512) b[j] = i; blocks.push(b); }
const objects = [];
for (let i = 0; i < 200000; i++) objects.push({ id: i, text: "item " + i });
let sum = 0;
for (const b of blocks) for (const part of b) sum += part;
for (const o of objects) sum += o.id + o.text.length;
const c = document.getElementById("c").getContext("2d");
for (let i = 0; i < 300; i++) { c.fillStyle = `rgb(${i % 255},${i * 7 % 255},9)`; c.fillRect(i * 5, i * 3, 80, 90); }
const data = c.getImageData(0, 0, 1500, 1500).data;
for (let i = 0; i < data.length; i += 97) sum += data[i];
document.getElementById("out").textContent = "sum " + sum;
</script></body></html>
HTML
chromium "$@" --headless --disable-gpu --disable-dev-shm-usage --user-data-dir="$PWD/profile" --dump-dom "file://$PWD/page.html" \
    2>log | grep -o 'sum [0-9]*</p>'
echo "status ${PIPESTATUS[0]}"
grep -iE 'userswap|signal|fatal|crash' log >&2
true
