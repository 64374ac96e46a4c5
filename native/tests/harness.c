/* See harness.h. Here, too, is what FILCH_INTERPOSE calls in front of every atomic operation of the core. */
#include "harness.h"

#include <inttypes.h>
#include <unistd.h>

#define MOST 64    /* threads */

static uint64_t seed, scale = 100, limit_s = 60; /* for one test program: only a hang takes so long */
static const char *program = "?";
static _Atomic(const char *) running = "?"; /* the watcher reads it, too */
static _Thread_local uint64_t stream;
static pthread_barrier_t gate;
static void (*work)(unsigned);

_Noreturn void harness_fail(const char *file, int line, const char *what)
{
    printf("FAILED %s.%s: %s:%d: %s (FILCH_SEED=%" PRIu64 ")\n", program, running, file, line, what, seed);
    fflush(stdout);
    _exit(1);
}

static void *watch(void *unused)
{
    (void)unused;
    sleep((unsigned)limit_s);
    printf("FAILED %s.%s: no end after %" PRIu64 " s (FILCH_SEED=%" PRIu64 ")\n", program, running, limit_s, seed);
    fflush(stdout);
    _exit(1);
}

static uint64_t mix(uint64_t value)
{
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}

void harness_start(const char *name)
{
    const char *given = getenv("FILCH_SEED"), *percent = getenv("FILCH_SCALE"), *limit = getenv("FILCH_LIMIT");
    pthread_t watcher;
    program = name;
    seed = given ? strtoull(given, NULL, 10) : mix(filch_now_ns() ^ (uint64_t)getpid()) % 1000000000u;
    scale = percent ? strtoull(percent, NULL, 10) : 100;
    limit_s = limit ? strtoull(limit, NULL, 10) : limit_s;
    stream = mix(seed);
    printf("%s FILCH_SEED=%" PRIu64 "\n", program, seed);
    if (pthread_create(&watcher, NULL, watch, NULL) || pthread_detach(watcher))
        harness_fail(__FILE__, __LINE__, "a thread for the time limit");
}

void harness_case(const char *name, void (*body)(void))
{
    uint64_t before = filch_now_ns();
    running = name;
    body();
    printf("ok %s.%s (%" PRIu64 " ms)\n", program, name, (filch_now_ns() - before) / 1000000);
    fflush(stdout);
}

uint64_t harness_steps(uint64_t usual)
{
    uint64_t steps = usual * scale / 100;
    return steps ? steps : 1;
}

uint64_t harness_random(void)
{
    stream += 0x9e3779b97f4a7c15u;
    return mix(stream);
}

static void *body_of_thread(void *argument)
{
    unsigned number = (unsigned)(uintptr_t)argument;
    stream = mix(seed + number + 1);
    pthread_barrier_wait(&gate);
    work(number);
    return NULL;
}

void harness_together(unsigned threads, void (*body)(unsigned number))
{
    struct filch_thread started[MOST];
    CHECK(threads <= MOST);
    work = body;
    pthread_barrier_init(&gate, NULL, threads);
    for (unsigned i = 0; i < threads; i++)
        CHECK(!filch_thread_start(&started[i], body_of_thread, (void *)(uintptr_t)i));
    for (unsigned i = 0; i < threads; i++)
        filch_thread_join(&started[i]);
    pthread_barrier_destroy(&gate);
}

void harness_nap(uint64_t us)
{
    struct timespec span = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000 * 1000)};
    nanosleep(&span, NULL);
}

#ifdef FILCH_INTERPOSE
/* One operation in 64 lets somebody else run, one in 4,096 sleeps. Threads that the harness did not start have a stream
   that begins with 0. */
void filch_interpose(void)
{
    uint64_t dice = harness_random();
    if (dice % 64 == 0)
        sched_yield();
    else if (dice % 4096 == 1)
        harness_nap(dice >> 32 & 63);
}
#endif
