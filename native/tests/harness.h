/* What every C test uses: checks that say where, a seed that is printed, a time limit, threads that start together. */
#ifndef FILCH_HARNESS_H
#define FILCH_HARNESS_H

#include "../core/thread.h"

#include <stdio.h>
#include <stdlib.h>

/* Fails the program, with the place, the seed and the case. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition))                                                                                              \
            harness_fail(__FILE__, __LINE__, #condition);                                                              \
    } while (0)

/* Runs a case: `static void name(void)`. */
#define CASE(name) harness_case(#name, name)

_Noreturn void harness_fail(const char *file, int line, const char *what);
void harness_case(const char *name, void (*body)(void));

/* Reads FILCH_SEED, FILCH_SCALE (percent of the usual number of steps) and FILCH_LIMIT (seconds); prints the seed. */
void harness_start(const char *name);

/* The usual number of steps, scaled; at least 1. */
uint64_t harness_steps(uint64_t usual);

/* Random numbers of this thread; threads of `harness_together` and the main thread have streams of their own. */
uint64_t harness_random(void);
static inline uint64_t harness_below(uint64_t bound)
{
    return harness_random() % bound;
}

/* Runs body(0), ..., body(threads - 1) on a thread each, let go at the same moment, and joins them. */
void harness_together(unsigned threads, void (*body)(unsigned number));

/* Sleeps for microseconds. */
void harness_nap(uint64_t us);

#endif
