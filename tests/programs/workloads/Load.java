// row Java, default flags: java -Xmx400m -cp {build} Load
// row Java, G1: java -XX:+UseG1GC -Xmx400m -cp {build} Load
// row Java, Serial: java -XX:+UseSerialGC -Xmx400m -cp {build} Load
// row Java, Parallel: java -XX:+UseParallelGC -Xmx400m -cp {build} Load
// row Java, ZGC: java -XX:+UseZGC -Xmx400m -cp {build} Load
// needs: java javac
// build: javac -d {build} {file}
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

/** Garbage beside what stays: maps of strings, blocks, and four threads that change both. */
public class Load {
    static long share(int number) {
        Map<Integer, String> map = new HashMap<>();
        List<byte[]> blocks = new ArrayList<>();
        for (int i = 0; i < 120_000; i++) {
            map.put(i, "thread " + number + " value " + (i * 31 % 977));
            if (i % 8000 == 0) {
                byte[] block = new byte[1 << 20];
                for (int j = 0; j < block.length; j += 512) block[j] = (byte) (i + j);
                blocks.add(block);
            }
        }
        long sum = 0;
        for (String text : map.values()) sum += text.hashCode();
        for (byte[] block : blocks) for (byte part : block) sum += part;
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        long[] sums = new long[4];
        for (int round = 0; round < 3; round++) {
            List<Thread> threads = new ArrayList<>();
            for (int n = 0; n < sums.length; n++) {
                int number = n;
                Thread thread = new Thread(() -> sums[number] += share(number));
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) thread.join();
        }
        System.out.println(sums[0] + " " + sums[1] + " " + sums[2] + " " + sums[3]);
    }
}
