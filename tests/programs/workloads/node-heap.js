// row Node, heap: node {file}
// needs: node
const blocks = [];
for (let i = 0; i < 120; i++) {
  const block = new Uint8Array(1 << 20);
  for (let j = 0; j < block.length; j += 4096) block[j] = i;
  blocks.push(block);
}
const objects = {};
for (let i = 0; i < 300000; i++) objects["k" + i] = { a: i, b: "x" + i };
let sum = 0;
for (const block of blocks) for (let j = 0; j < block.length; j += 4096) sum += block[j];
for (const key in objects) sum += objects[key].a + objects[key].b.length;
console.log(sum, Object.keys(objects).length);
