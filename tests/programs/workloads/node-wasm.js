// row Node, wasm: node {file}
// needs: node
// (module (memory (export "memory") 1600) (func (export "fill") (param i32 i32): writes 8 bytes at each step of 64;
//  (func (export "sum") …: adds them up again)
const bytes = [0, 97, 115, 109, 1, 0, 0, 0, 1, 11, 2, 96, 2, 127, 127, 0, 96, 1, 127, 1, 126, 3, 3, 2, 0, 1,
  5, 4, 1, 0, 192, 12, 7, 23, 3, 6, 109, 101, 109, 111, 114, 121, 2, 0, 4, 102, 105, 108, 108, 0, 0, 3, 115, 117, 109, 0, 1];
const fill = [0, 3, 64, 32, 0, 32, 0, 172, 55, 3, 0, 32, 0, 65, 192, 0, 106, 34, 0, 32, 1, 73, 13, 0, 11, 11];
const sum = [2, 1, 127, 1, 126, 3, 64, 32, 2, 32, 1, 41, 3, 0, 124, 33, 2, 32, 1, 65, 192, 0, 106, 34, 1, 32, 0, 73, 13, 0,
  11, 32, 2, 11];
sum.splice(0, 5, 2, 1, 127, 1, 126);
const body = (code) => [code.length, ...code];
const codes = [2, ...body(fill), ...body(sum.map((b, i) => b))];
// In `sum` the local 1 is the address (i32) and 2 the total (i64).
bytes.push(10, codes.length, ...codes);
const { memory, fill: write, sum: read } = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array(bytes))).exports;
const end = memory.buffer.byteLength;
write(0, end);
const before = memory.grow(160);
write(end, memory.buffer.byteLength);
console.log(before, memory.buffer.byteLength, read(memory.buffer.byteLength).toString());
