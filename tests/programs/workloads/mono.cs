// row Mono: mono {build}/mono.exe
// needs: mono mcs
// build: mcs -out:{build}/mono.exe {file}
using System;
using System.Collections.Generic;
using System.Threading;
using System.Threading.Tasks;

class Program {
    static void Main() {
        var texts = new Dictionary<string, string>();
        for (int i = 0; i < 500000; i++) texts["key" + i] = "text" + i;
        long length = 0;
        foreach (var text in texts.Values) length += text.Length;
        var blocks = new List<byte[]>();
        for (int i = 0; i < 60; i++) {
            var block = new byte[1 << 20];
            for (int j = 0; j < block.Length; j += 999) block[j] = (byte)i;
            blocks.Add(block);
        }
        long sum = 0;
        Parallel.For(0, 60, i => {
            long part = 0;
            foreach (var one in blocks[i]) part += one;
            Interlocked.Add(ref sum, part);
        });
        Console.WriteLine(length + " " + sum);
    }
}
