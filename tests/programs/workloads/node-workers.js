// row Node, workers: node {file}
// needs: node
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
if (isMainThread) {
  const shared = new SharedArrayBuffer(4 << 20);
  const sums = [];
  for (let n = 0; n < 4; n++) {
    const worker = new Worker(__filename, { workerData: { n, shared } });
    worker.on("message", (sum) => {
      sums.push(sum);
      if (sums.length === 4) console.log(sums.sort().join(" "), Atomics.load(new Int32Array(shared), 0));
    });
  }
} else {
  const own = [];
  for (let i = 0; i < 60000; i++) own.push({ id: i, text: `worker ${workerData.n} item ${i}`.repeat(3) });
  const block = new Float64Array(3 << 20).fill(workerData.n + 0.5);
  let sum = block.reduce((a, b) => a + b, 0);
  for (const item of own) sum += item.text.length + item.id;
  Atomics.add(new Int32Array(workerData.shared), 0, 1);
  parentPort.postMessage(sum);
}
