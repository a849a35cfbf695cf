// Objects in a Map, in the order of their keys and out of it, then half of them replaced. Argument: objects.
const count = Number(process.argv[2]);
let started = process.hrtime.bigint();

function part(name) {
  const now = process.hrtime.bigint();
  console.error(`part ${name} ${(Number(now - started) / 1e9).toFixed(3)}`);
  started = now;
}

const things = new Map();
for (let i = 0; i < count; i++) things.set(`key ${i}`, { number: i, text: `value ${i * 7919 % count}`, list: [i, i + 1] });
part("fill");
let sum = 0;
for (const thing of things.values()) sum = (sum * 31 + thing.number + thing.text.length + thing.list[1]) % 1000003;
console.log(things.size, sum);
part("walk");
for (let i = 0; i < count; i += 16) sum = (sum * 31 + things.get(`key ${i * 7919 % count}`).text.charCodeAt(6)) % 1000003;
console.log(sum);
part("lookup");
for (let i = 0; i < count; i += 2) things.set(`key ${i}`, { number: -i, text: `new ${i}`, list: [i] });
for (const thing of things.values()) sum = (sum * 31 + thing.number + thing.text.length + thing.list.length) % 1000003;
console.log(things.size, sum);
part("replace");
