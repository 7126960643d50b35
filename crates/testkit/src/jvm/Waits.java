/** Reports its start, and waits until its standard input ends. */
public class Waits {
    public static void main(String[] arguments) throws Exception {
        System.out.println("up");
        System.out.flush();
        while (System.in.read() >= 0) {
        }
    }
}
