/* A latch: set once, waited for by any number of threads. */
#ifndef FILCH_LATCH_H
#define FILCH_LATCH_H

#include "parker.h"

struct filch_latch {
    filch_atomic_u32 word; /* set, and whether somebody waits: by anybody, with read-modify-writes */
};

void filch_latch_init(struct filch_latch *latch);

/* Anybody, once or more. What came before it is visible to who sees it set. The latch may be gone when this returns: it
   is not touched after it is set. */
void filch_latch_set(struct filch_latch *latch);

bool filch_latch_is_set(const struct filch_latch *latch);

/* FILCH_TOKEN: it is set. FILCH_DISTURBED: a signal came, or somebody unparked the thread for another reason. */
enum filch_parked filch_latch_wait(struct filch_latch *latch, struct filch_parker *parker, uint64_t deadline);

#endif
