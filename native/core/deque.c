/* The deque: all of its state is one word, so each step is one read-modify-write. */
#include "deque.h"

_Static_assert((FILCH_RING & (FILCH_RING - 1)) == 0 && FILCH_RING >= 2 && FILCH_RING <= 1 << 15, "see FILCH_RING");

/* Positions count up for ever, modulo 2^16; a task at position p lies in slot p % FILCH_RING. */
struct ends {
    uint16_t lag;    /* slots before it are free; it trails `top` while a thief copies */
    uint16_t top;    /* the oldest task */
    uint16_t bottom; /* the next push */
};

/* `bottom` is uppermost, so that a carry out of it is lost and disturbs nothing. */
#define BOTTOM_SHIFT 48

static struct ends unpack(uint64_t word)
{
    return (struct ends){(uint16_t)word, (uint16_t)(word >> 16), (uint16_t)(word >> BOTTOM_SHIFT)};
}

static uint64_t pack(struct ends ends)
{
    return (uint64_t)ends.lag | (uint64_t)ends.top << 16 | (uint64_t)ends.bottom << BOTTOM_SHIFT;
}

static unsigned length(struct ends ends)
{
    return (uint16_t)(ends.bottom - ends.top);
}

void filch_deque_init(struct filch_deque *deque, uint16_t start)
{
    filch_u64_init(&deque->ends, pack((struct ends){start, start, start}));
}

bool filch_deque_push(struct filch_deque *deque, struct filch_task *const *tasks, unsigned count)
{
    /* Acquire: pairs with the commit of `steal`. A slot before `lag` has been read by the thief that had it. */
    struct ends ends = unpack(filch_u64_load_acquire(&deque->ends));
    if ((uint16_t)(ends.bottom - ends.lag) + count > FILCH_RING)
        return false;
    /* Others may move `lag` and `top` since the look, never `bottom`: these slots stay free until the next line but
       one. */
    for (unsigned i = 0; i < count; i++)
        deque->slots[(uint16_t)(ends.bottom + i) % FILCH_RING] = tasks[i];
    /* Release: pairs with the claim of `steal`, publishes the slots and the tasks in them. */
    filch_u64_fetch_add_acq_rel(&deque->ends, (uint64_t)count << BOTTOM_SHIFT);
    return true;
}

struct filch_task *filch_deque_pop(struct filch_deque *deque)
{
    uint64_t word = filch_u64_load_relaxed(&deque->ends); /* relaxed: a guess, which the compare-and-swap checks */
    struct ends ends;
    do {
        ends = unpack(word);
        if (ends.top == ends.bottom)
            return NULL;
        ends.bottom--;
        /* The swap is of the whole word: a thief that claimed this task meanwhile makes it fail. */
    } while (!filch_u64_cas_acq_rel(&deque->ends, &word, pack(ends)));
    return deque->slots[ends.bottom % FILCH_RING]; /* the owner's own writing, and nobody else's to read */
}

/* Owner only: move `top` over the `count` oldest, and `lag` with it unless a thief copies. */
static bool advance(struct filch_deque *deque, unsigned count, bool alone, uint16_t *first)
{
    uint64_t word = filch_u64_load_relaxed(&deque->ends); /* relaxed: as in `pop` */
    struct ends ends;
    do {
        ends = unpack(word);
        if (length(ends) < count || (alone && ends.lag != ends.top))
            return false;
        *first = ends.top;
        ends.top = (uint16_t)(ends.top + count);
        if (ends.lag == *first)
            ends.lag = ends.top;
    } while (!filch_u64_cas_acq_rel(&deque->ends, &word, pack(ends)));
    return true;
}

struct filch_task *filch_deque_take(struct filch_deque *deque)
{
    uint16_t first;
    if (!advance(deque, 1, false, &first))
        return NULL;
    return deque->slots[first % FILCH_RING]; /* free to be written, but only by the owner, who is here */
}

unsigned filch_deque_spill(struct filch_deque *deque, struct filch_task *tasks[FILCH_SPILL])
{
    uint16_t first;
    if (!advance(deque, FILCH_SPILL, true, &first))
        return 0;
    for (unsigned i = 0; i < FILCH_SPILL; i++)
        tasks[i] = deque->slots[(uint16_t)(first + i) % FILCH_RING];
    return FILCH_SPILL;
}

int filch_deque_steal(struct filch_deque *deque, struct filch_task *tasks[FILCH_LOOT])
{
    uint64_t word = filch_u64_load_relaxed(&deque->ends); /* relaxed: as in `pop` */
    struct ends ends;
    uint16_t first;
    unsigned count;
    do {
        ends = unpack(word);
        if (ends.top == ends.bottom)
            return 0;
        if (ends.lag != ends.top)
            return FILCH_BUSY;
        count = (length(ends) + 1) / 2;
        if (count > FILCH_LOOT)
            count = FILCH_LOOT;
        first = ends.top;
        ends.top = (uint16_t)(first + count);
        /* The claim. Acquire: pairs with the release of `push`, whose slots are read below. */
    } while (!filch_u64_cas_acq_rel(&deque->ends, &word, pack(ends)));
    filch_interpose(); /* the slots are plain, so the seam would not pause between claim and copy by itself */
    for (unsigned i = 0; i < count; i++)
        tasks[i] = deque->slots[(uint16_t)(first + i) % FILCH_RING];
    word = pack(ends);
    do {
        ends = unpack(word);
        ends.lag = ends.top; /* not first + count: the owner may have taken from the top meanwhile */
        /* The commit. Release: pairs with the acquire of `push`; these slots may be written again. */
    } while (!filch_u64_cas_acq_rel(&deque->ends, &word, pack(ends)));
    return (int)count;
}

unsigned filch_deque_length(const struct filch_deque *deque)
{
    /* Acquire, though racy on purpose: who looks after a full fence must see the tasks that were pushed before the
       other side's fence, and nothing is read on the strength of it. */
    return length(unpack(filch_u64_load_acquire(&deque->ends)));
}
