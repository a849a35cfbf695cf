# row Firefox, without its sandbox: bash {file}
# needs: firefox-esr
# A picture of a page whose script allocates; its processes are forks, and each execs.
export HOME=$PWD
for part in CONTENT GMP RDD SOCKET_PROCESS UTILITY; do export "MOZ_DISABLE_${part}_SANDBOX=1"; done
cat >page.html <<'HTML'
<html><body><canvas id=c width=400 height=300></canvas><script>
const blocks = [];
for (let i = 0; i < 60; i++) blocks.push(new Uint8Array(1 << 20).fill(i));
let sum = 0;
for (const block of blocks) sum += block[77];
const c = document.getElementById("c").getContext("2d");
c.fillStyle = `rgb(${sum % 256},9,9)`;
c.fillRect(0, 0, 400, 300);
</script></body></html>
HTML
mkdir profile
firefox-esr --headless --profile profile --screenshot "$PWD/picture.png" --window-size 400,300 "file://$PWD/page.html" 2>log
echo "status $?"
sha256sum <picture.png
grep -aE 'userswap' log >&2
true
