// row Node, child processes: node {file}
// needs: node
const { execFileSync, spawn } = require("child_process");
const block = Buffer.alloc(100 << 20);
for (let i = 0; i < block.length; i += 4096) block.writeUInt32LE(i, i);
const lines = [];
for (let i = 0; i < 5; i++) lines.push(execFileSync("sh", ["-c", `echo child ${i}; seq 1 1000 | tail -1`]).toString());
const child = spawn("sort", ["-n"]);
const out = [];
child.stdout.on("data", (part) => out.push(part));
child.on("close", (code) => {
  let right = 0;
  for (let i = 0; i < block.length; i += 4096) right += block.readUInt32LE(i) === i;
  const text = Buffer.concat(out).toString();
  console.log(lines.join("").length, code, text.length, text.slice(0, 20).replace(/\n/g, " "), right);
});
for (let i = 0; i < 200000; i++) child.stdin.write(`${(i * 7919) % 200000}\n`);
child.stdin.end();
