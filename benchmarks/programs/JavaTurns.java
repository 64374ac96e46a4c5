// The scenarios of the benchmarks that Java's ForkJoinPool takes part in: it reads "SCENARIO SIZE WORKERS" lines and
// answers each with nanoseconds an operation.  The work is done several times before, so that its code is compiled.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ForkJoinTask;
import java.util.concurrent.RecursiveTask;
import java.util.concurrent.atomic.AtomicInteger;

public final class JavaTurns {
    static final int BATCH = 5000;
    static final int CHAIN = 1000;
    static final int WARM_ROUNDS = 5;

    // From outside: start tasks and wait until all have run.
    static int spawn(ForkJoinPool pool, int size) throws Exception {
        AtomicInteger left = new AtomicInteger(size);
        CountDownLatch ended = new CountDownLatch(1);
        Runnable task = () -> {
            if (left.decrementAndGet() == 0) ended.countDown();
        };
        for (int i = 0; i < size; i++) pool.execute(task);
        ended.await();
        return size;
    }

    // The same, started by a task.
    static int spawnLocal(ForkJoinPool pool, int size) throws Exception {
        AtomicInteger left = new AtomicInteger(size);
        CountDownLatch ended = new CountDownLatch(1);
        Runnable task = () -> {
            if (left.decrementAndGet() == 0) ended.countDown();
        };
        pool.execute(() -> {
            for (int i = 0; i < size; i++) pool.execute(task);
        });
        ended.await();
        return size;
    }

    // Submit tasks, and then take every result.
    static int submit(ForkJoinPool pool, int size) throws Exception {
        for (int start = 0; start < size; start += BATCH) {
            ForkJoinTask<?>[] tasks = new ForkJoinTask<?>[Math.min(BATCH, size - start)];
            for (int i = 0; i < tasks.length; i++) tasks[i] = pool.submit(() -> 1);
            for (ForkJoinTask<?> task : tasks) {
                if ((Integer) task.get() != 1) throw new IllegalStateException("a task gave another result than its own");
            }
        }
        return size;
    }

    static void hop(ForkJoinPool pool, int left, CountDownLatch ended) {
        if (left == 0) ended.countDown();
        else pool.execute(() -> hop(pool, left - 1, ended));
    }

    // Each task submits the next one and ends.
    static int chain(ForkJoinPool pool, int size) throws Exception {
        int hops = Math.min(CHAIN, size);
        for (int i = 0; i < size / hops; i++) {
            CountDownLatch ended = new CountDownLatch(1);
            pool.execute(() -> hop(pool, hops - 1, ended));
            ended.await();
        }
        return size / hops * hops;
    }

    static final class Fork extends RecursiveTask<Integer> {
        final int n;

        Fork(int n) {
            this.n = n;
        }

        @Override
        protected Integer compute() {
            if (n < 2) return n;
            Fork other = new Fork(n - 1);
            other.fork();
            return new Fork(n - 2).compute() + other.join();
        }
    }

    // The largest n whose fib(n) forks at most size times, but at least 2.
    static int fib(ForkJoinPool pool, int size) {
        int n = 2, value = 1, following = 2;
        while (value + following - 1 <= size) {
            int next = value + following;
            value = following;
            following = next;
            n++;
        }
        int got = pool.invoke(new Fork(n));
        if (got != value) throw new IllegalStateException("fib(" + n + ") must be " + value + ", not " + got);
        return following - 1;
    }

    static int turn(String name, ForkJoinPool pool, int size) throws Exception {
        switch (name) {
            case "spawn": return spawn(pool, size);
            case "spawnlocal": return spawnLocal(pool, size);
            case "submit": return submit(pool, size);
            case "chain": return chain(pool, size);
            case "fib": return fib(pool, size);
            default: throw new IllegalArgumentException("there is no scenario " + name);
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.out.println("ready Java " + System.getProperty("java.version"));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            int size = Integer.parseInt(words[1]);
            ForkJoinPool pool = new ForkJoinPool(Integer.parseInt(words[2]));
            for (int i = 0; i < WARM_ROUNDS; i++) turn(words[0], pool, size);
            System.gc();
            long start = System.nanoTime();
            int done = turn(words[0], pool, size);
            System.out.println((double) (System.nanoTime() - start) / done);
            pool.shutdown();
        }
    }
}
