// row Node, wasm: node {file}
// needs: node
// By hand: (module (memory (export "memory") 1600), (func (export "fill") (param from to)) writes 8 bytes at each step of 64,
// (func (export "sum") (param to) (result i64)) adds them up.
const types = [1, 11, 2, 96, 2, 127, 127, 0, 96, 1, 127, 1, 126];
const names = ["memory", "fill", "sum"].map((name) => [name.length, ...Buffer.from(name)]);
const exported = [3, ...names[0], 2, 0, ...names[1], 0, 0, ...names[2], 0, 1];
const fill = [0, 3, 64, 32, 0, 32, 0, 172, 55, 3, 0, 32, 0, 65, 192, 0, 106, 34, 0, 32, 1, 73, 13, 0, 11, 11];
const sum = [2, 1, 127, 1, 126, 3, 64, 32, 2, 32, 1, 41, 3, 0, 124, 33, 2, 32, 1, 65, 192, 0, 106, 34, 1, 32, 0, 73, 13,
  0, 11, 32, 2, 11];
const codes = [2, fill.length, ...fill, sum.length, ...sum];
const bytes = [0, 97, 115, 109, 1, 0, 0, 0, ...types, 3, 3, 2, 0, 1, 5, 4, 1, 0, 192, 12, 7, exported.length, ...exported,
  10, codes.length, ...codes];
const module_ = new WebAssembly.Module(new Uint8Array(bytes));
const { memory, fill: write, sum: read } = new WebAssembly.Instance(module_).exports;
const end = memory.buffer.byteLength;
write(0, end);
const before = memory.grow(160);
write(end, memory.buffer.byteLength);
console.log(before, memory.buffer.byteLength, read(memory.buffer.byteLength).toString());
