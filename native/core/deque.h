/* The deque of a processor: a ring of fixed size. The owner pushes at the bottom, and takes the newest there or the
   oldest at the top; thieves take the oldest half, at most 32, in one step; a full ring gives its oldest half away in
   one step.

   The protocol and its proof: native/README.md, "The deque". */
#ifndef FILCH_DEQUE_H
#define FILCH_DEQUE_H

#include "task.h"

/* Tasks in a ring: 256, as in the design (R3); a power of two, at most 2^15. Tests have it smaller. */
#ifndef FILCH_RING
#define FILCH_RING 256
#endif
/* Tasks taken from a victim at most (R2). */
#define FILCH_LOOT 32
/* Tasks that a full ring gives away. */
#define FILCH_SPILL (FILCH_RING / 2)

struct filch_deque {
    filch_atomic_u64 ends; /* lag, top and bottom: by the owner and by thieves, with read-modify-writes */
    char apart[FILCH_LINE - sizeof(filch_atomic_u64)];
    /* By the owner alone. Slots from `lag` to before `bottom` are read by others and are not written. */
    struct filch_task *slots[FILCH_RING];
};

/* What `filch_deque_steal` says when another thief is at work there: look again later. */
#define FILCH_BUSY (-1)

/* Positions start at `start`; they wrap at 2^16, which tests reach sooner with a `start` shortly before. */
void filch_deque_init(struct filch_deque *deque, uint16_t start);

/* Owner only. Put `count` tasks at the bottom, the last one newest, in one step; false, and nothing is done, when
   they do not fit. */
bool filch_deque_push(struct filch_deque *deque, struct filch_task *const *tasks, unsigned count);

/* Owner only. The newest, or NULL. */
struct filch_task *filch_deque_pop(struct filch_deque *deque);

/* Owner only. The oldest, or NULL. */
struct filch_task *filch_deque_take(struct filch_deque *deque);

/* Owner only, when full. Take the oldest half out, oldest first, in one step: FILCH_SPILL, or 0 when a thief is at
   work, and then room comes soon: give the new task away instead. */
unsigned filch_deque_spill(struct filch_deque *deque, struct filch_task *tasks[FILCH_SPILL]);

/* Anybody but the owner. Take the oldest half, oldest first, at most FILCH_LOOT: how many, 0 when there is nothing, or
   FILCH_BUSY. */
int filch_deque_steal(struct filch_deque *deque, struct filch_task *tasks[FILCH_LOOT]);

/* Anybody. How many there were at some moment during the call. */
unsigned filch_deque_length(const struct filch_deque *deque);

#endif
