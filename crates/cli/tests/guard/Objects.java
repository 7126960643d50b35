import java.util.HashMap;
import java.util.Random;

/** Objects that fill a heap: arrays of bytes, and a map that finds them. It grows, says "ready",
 * waits for a line, and then looks them up at random.
 *
 * usage: java Objects.java BYTES LOOKUPS
 */
public class Objects {
    record Row(long number, byte[] payload, Row before) {}

    public static void main(String[] arguments) throws Exception {
        long bytes = Long.parseLong(arguments[0]), held = 0;
        int lookups = Integer.parseInt(arguments[1]), count = 0;
        Random draw = new Random(1);
        HashMap<Integer, Row> rows = new HashMap<>();
        Row before = null;
        long start = System.nanoTime();
        while (held < bytes) {
            byte[] payload = new byte[64 + draw.nextInt(1000)];
            payload[payload.length / 2] = (byte) count;
            before = new Row(count, payload, before);
            rows.put(count++, before);
            // A row, its payload's header, and its place in the map.
            held += payload.length + 112;
        }
        System.out.println("rate grow " + count / ((System.nanoTime() - start) / 1e9));
        System.out.println("ready");
        System.out.flush();
        System.in.read();
        start = System.nanoTime();
        long sum = 0;
        for (int i = 0; i < lookups; i++) {
            Row row = rows.get(draw.nextInt(count));
            sum += row.number() + row.payload()[row.payload().length / 2];
            row = row.before();
            sum += row == null ? 0 : row.payload()[0];
        }
        System.out.println("rate work " + lookups / ((System.nanoTime() - start) / 1e9));
        System.out.println("check " + sum);
    }
}
