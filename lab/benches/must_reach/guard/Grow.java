import java.util.Random;

/** A heap that grows when told, and is read at random all the time.
 *
 * usage: java Grow.java MIB-AT-FIRST
 * Each line on standard input is so many MiB more. Ten times a second it prints how many it has read since.
 */
public class Grow {
    static final int PART = 1 << 20;
    static byte[][] parts = new byte[0][];

    static void grow(int mib) {
        byte[][] more = java.util.Arrays.copyOf(parts, parts.length + mib);
        for (int i = parts.length; i < more.length; i++) {
            more[i] = new byte[PART];
            for (int at = 0; at < PART; at += 512) more[i][at] = (byte) (i + at / 512);
        }
        parts = more;
    }

    public static void main(String[] arguments) throws Exception {
        grow(Integer.parseInt(arguments[0]));
        Thread reader = new Thread(() -> {
            Random draw = new Random(1);
            long sum = 0;
            while (true) {
                long end = System.nanoTime() + 100_000_000L;
                int reads = 0;
                while (System.nanoTime() < end) {
                    byte[][] now = parts;
                    for (int i = 0; i < 1000; i++) {
                        int part = draw.nextInt(now.length), at = draw.nextInt(PART / 512);
                        if (now[part][at * 512] != (byte) (part + at)) System.exit(4);
                        sum += part;
                    }
                    reads += 1000;
                }
                System.out.println(reads);
                System.out.flush();
            }
        });
        reader.setDaemon(true);
        reader.start();
        var input = new java.io.BufferedReader(new java.io.InputStreamReader(System.in));
        for (String line; (line = input.readLine()) != null; ) grow(Integer.parseInt(line));
    }
}
