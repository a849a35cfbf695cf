import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/** Strings in a HashMap: filled, looked up out of order, half replaced, walked through. Argument: entries. */
public class HashMapJob {
    private static long started = System.nanoTime();

    private static void part(String name) {
        long now = System.nanoTime();
        System.err.println(String.format(Locale.ROOT, "part %s %.3f", name, (now - started) / 1e9));
        started = now;
    }

    public static void main(String[] arguments) {
        int count = Integer.parseInt(arguments[0]);
        Map<Integer, String> map = new HashMap<>();
        for (int i = 0; i < count; i++) map.put(i, "value " + i);
        part("fill");
        long sum = 0;
        for (long i = 0; i < count; i += 16) sum = sum * 31 + map.get((int) (i * 104729 % count)).hashCode();
        System.out.println(sum);
        part("lookup");
        for (int i = 0; i < count; i += 2) map.put(i, "new " + i);
        part("replace");
        for (Map.Entry<Integer, String> entry : map.entrySet()) {
            sum = sum * 31 + entry.getKey() + entry.getValue().hashCode();
        }
        System.out.println(map.size() + " " + sum);
        part("walk");
    }
}
