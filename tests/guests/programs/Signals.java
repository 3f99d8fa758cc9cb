// SPDX-License-Identifier: Apache-2.0

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import sun.misc.Signal;

/**
 * The Java virtual machine lives by signals: null pointers and safepoints are SIGSEGV, SIGTERM and
 * SIGINT run its hooks; it has an interposer for handlers of its own (libjsig), and starts
 * processes by a helper.
 */
public class Signals {
	private static volatile Object nothing;

	private static void handled(String name) throws Exception {
		CountDownLatch came = new CountDownLatch(1);
		Signal.handle(new Signal(name), signal -> came.countDown());
		Signal.raise(new Signal(name));
		System.out.println(name + " " + came.await(60, TimeUnit.SECONDS));
	}

	private static int faults() {
		int caught = 0;
		for (int i = 0; i < 1000; i++)
			try {
				nothing.hashCode();
			} catch (NullPointerException expected) {
				caught++;
			}
		return caught;
	}

	private static int depth(int n) {
		return depth(n + 1) + 1;
	}

	private static long work() throws Exception {
		List<Thread> threads = new ArrayList<>();
		long[] sums = new long[8];
		for (int i = 0; i < sums.length; i++) {
			int number = i;
			Thread thread = new Thread(() -> {
				for (int k = 0; k < 200000; k++)
					sums[number] += new int[] {k}[0];
			});
			threads.add(thread);
			thread.start();
		}
		System.gc();
		long sum = 0;
		for (int i = 0; i < sums.length; i++) {
			threads.get(i).join();
			sum += sums[i];
		}
		return sum;
	}

	public static void main(String[] args) throws Exception {
		for (String name : new String[] {"TERM", "INT", "USR2", "HUP"})
			handled(name);
		System.out.println("faults " + faults());
		try {
			depth(0);
		} catch (StackOverflowError expected) {
			System.out.println("the stack is finite");
		}
		System.out.println("sum " + work());
		Process process = new ProcessBuilder("echo", "a child").inheritIO().start();
		System.out.println("a child ended with " + process.waitFor());
		process = new ProcessBuilder("sh", "-c", "kill -TERM $$").start();
		System.out.println("a child ended with " + process.waitFor());
		Signal.handle(new Signal("TERM"), jdk -> Runtime.getRuntime().exit(143));
		Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("the end")));
		Signal.raise(new Signal("TERM"));
		Thread.sleep(60000);
	}
}
