/* The deque: order, ends, wrap, and that each task is taken exactly once whoever comes. Built with rings of 256 and
   of 4. */
#include "harness.h"

#include "../core/deque.h"

#define THIEVES 3
#define POOL (FILCH_RING * 2)

/* A task that is out is in the deque or in somebody's hands; the ledger is that it is out once at a time, and home in
   the end. `cargo` is plain on purpose: the deque has to publish it. */
struct parcel {
    struct filch_task task; /* first, so that a task is a parcel */
    filch_atomic_u32 out;
    uint64_t cargo;
};

static struct parcel parcels[POOL];
static struct filch_deque deque;
static filch_atomic_u64 sent, done, thefts[THIEVES + 1];
static filch_atomic_u32 closed;

static void reset(uint16_t start)
{
    filch_deque_init(&deque, start);
    for (unsigned i = 0; i < POOL; i++) {
        filch_task_init(&parcels[i].task);
        filch_u32_init(&parcels[i].out, 0);
    }
    for (unsigned i = 0; i <= THIEVES; i++)
        filch_u64_init(&thefts[i], 0);
    filch_u64_init(&sent, 0);
    filch_u64_init(&done, 0);
    filch_u32_init(&closed, 0);
}

static struct filch_task *task(unsigned number)
{
    return &parcels[number].task;
}

static bool push(unsigned number)
{
    struct filch_task *one = task(number);
    return filch_deque_push(&deque, &one, 1);
}

static void smoke(void)
{
    struct filch_task *loot[FILCH_LOOT];
    reset(0);
    for (unsigned i = 0; i < 4; i++)
        CHECK(push(i));
    CHECK(filch_deque_length(&deque) == 4);
    CHECK(filch_deque_pop(&deque) == task(3));
    CHECK(filch_deque_take(&deque) == task(0));
    CHECK(filch_deque_steal(&deque, loot) == 1 && loot[0] == task(1));
    CHECK(filch_deque_pop(&deque) == task(2));
}

static void empty(void)
{
    struct filch_task *loot[FILCH_LOOT];
    reset(0);
    CHECK(!filch_deque_pop(&deque) && !filch_deque_take(&deque) && filch_deque_steal(&deque, loot) == 0);
    CHECK(push(0) && filch_deque_pop(&deque) == task(0));
    CHECK(!filch_deque_pop(&deque) && !filch_deque_take(&deque) && filch_deque_steal(&deque, loot) == 0);
    CHECK(filch_deque_length(&deque) == 0);
}

static void half_rounded_up_but_no_more_than_the_most(void)
{
    struct filch_task *loot[FILCH_LOOT];
    for (unsigned had = 1; had <= FILCH_RING; had++) {
        unsigned wanted = (had + 1) / 2 < FILCH_LOOT ? (had + 1) / 2 : FILCH_LOOT;
        reset((uint16_t)(had * 977));
        for (unsigned i = 0; i < had; i++)
            CHECK(push(i));
        CHECK(filch_deque_steal(&deque, loot) == (int)wanted);
        for (unsigned i = 0; i < wanted; i++)
            CHECK(loot[i] == task(i));
        CHECK(filch_deque_length(&deque) == had - wanted);
    }
}

static void full(void)
{
    struct filch_task *spilled[FILCH_SPILL], *two[2] = {task(0), task(1)};
    reset(UINT16_MAX - 2);
    for (unsigned i = 0; i < FILCH_RING; i++)
        CHECK(push(i));
    CHECK(!push(FILCH_RING));
    CHECK(filch_deque_spill(&deque, spilled) == FILCH_SPILL);
    for (unsigned i = 0; i < FILCH_SPILL; i++)
        CHECK(spilled[i] == task(i));
    for (unsigned i = 0; i < FILCH_SPILL - 1; i++)
        CHECK(push(i));
    CHECK(!filch_deque_push(&deque, two, 2)); /* all or nothing */
    CHECK(filch_deque_length(&deque) == FILCH_RING - 1);
    CHECK(push(FILCH_SPILL - 1) && !push(FILCH_SPILL));
    for (unsigned i = 0; i < FILCH_RING; i++)
        CHECK(filch_deque_take(&deque) == task(i < FILCH_SPILL ? FILCH_SPILL + i : i - FILCH_SPILL));
}

/* Random calls of one thread against an array that does the same. */
static void model(void)
{
    unsigned first = 0, last = 0; /* the array's ends */
    static struct filch_task *array[1 << 20];
    struct filch_task *out[FILCH_LOOT + FILCH_SPILL], *in[3];
    uint64_t steps = harness_steps(200000);
    reset((uint16_t)harness_random());
    for (uint64_t step = 0; step < steps && last < (1 << 20) - 3; step++) {
        unsigned had = last - first, count = (unsigned)harness_below(4), got;
        switch (harness_below(count ? 4 : 6)) {
        case 0:
            CHECK(filch_deque_pop(&deque) == (had ? array[--last] : NULL));
            break;
        case 1:
            CHECK(filch_deque_take(&deque) == (had ? array[first++] : NULL));
            break;
        case 4:
            got = (unsigned)filch_deque_steal(&deque, out);
            CHECK((got > 0) == (had > 0));
            for (unsigned i = 0; i < got; i++)
                CHECK(out[i] == array[first++]);
            break;
        case 5:
            got = filch_deque_spill(&deque, out);
            CHECK(got == (had >= FILCH_SPILL ? FILCH_SPILL : 0));
            for (unsigned i = 0; i < got; i++)
                CHECK(out[i] == array[first++]);
            break;
        default:
            for (unsigned i = 0; i < count; i++)
                in[i] = task((unsigned)harness_below(POOL));
            CHECK(filch_deque_push(&deque, in, count) == (had + count <= FILCH_RING));
            for (unsigned i = 0; i < count && had + count <= FILCH_RING; i++)
                array[last++] = in[i];
        }
        CHECK(filch_deque_length(&deque) == last - first);
    }
}

/* Take a parcel home that came out of the deque. */
static uint64_t bring_home(struct filch_task *found)
{
    struct parcel *parcel = (struct parcel *)found;
    uint64_t cargo = parcel->cargo;
    CHECK(filch_u32_exchange_acq_rel(&parcel->out, 0) == 1); /* 0: taken twice */
    filch_u64_fetch_add_acq_rel(&done, 1);
    return cargo;
}

/* A parcel that is at home, with its cargo, or NULL. */
static struct filch_task *send_out(void)
{
    for (unsigned i = 0, at = (unsigned)harness_below(POOL); i < POOL; i++, at = (at + 1) % POOL)
        if (filch_u32_load_acquire(&parcels[at].out) == 0) {
            parcels[at].cargo = filch_u64_fetch_add_acq_rel(&sent, 1) + 1;
            filch_u32_store_release(&parcels[at].out, 1);
            return task(at);
        }
    return NULL;
}

static void give_away(struct filch_task *one)
{
    struct filch_task *spilled[FILCH_SPILL];
    while (!filch_deque_push(&deque, &one, 1)) {
        unsigned count = filch_deque_spill(&deque, spilled);
        for (unsigned i = 0; i < count; i++)
            bring_home(spilled[i]);
        if (count == 0) {
            bring_home(one);
            return;
        }
    }
}

/* Steal until the owner has closed and nothing is left. `ordered`: nobody takes from the bottom or pushes late, so
   what a thief gets comes in order. */
static void thief(unsigned number, bool ordered)
{
    struct filch_task *loot[FILCH_LOOT];
    uint64_t last = 0;
    for (;;) {
        uint32_t is_closed = filch_u32_load_acquire(&closed); /* before the look, so that the look is the last one */
        int count = filch_deque_steal(&deque, loot);
        CHECK(count <= FILCH_LOOT);
        for (int i = 0; i < count; i++) {
            uint64_t cargo = bring_home(loot[i]);
            CHECK(!ordered || cargo > last);
            last = cargo;
        }
        if (count > 0)
            filch_u64_fetch_add_acq_rel(&thefts[number], 1);
        else if (count == 0 && is_closed)
            return;
        else
            filch_thread_yield();
    }
}

static void all_home(void)
{
    CHECK(filch_deque_length(&deque) == 0);
    CHECK(filch_u64_load_acquire(&sent) == filch_u64_load_acquire(&done));
    for (unsigned i = 0; i < POOL; i++)
        CHECK(filch_u32_load_acquire(&parcels[i].out) == 0); /* 1: lost */
    for (unsigned i = 0; i < FILCH_RING; i++)
        CHECK(push(i)); /* else: room that a thief has not given back */
    for (unsigned i = 0; i < FILCH_RING; i++)
        CHECK(filch_deque_take(&deque) == task(i));
}

static void push_all(unsigned number)
{
    if (number)
        thief(number, true);
    else {
        for (uint64_t i = harness_steps(50000); i > 0; i--) {
            struct filch_task *one = send_out();
            while (!one || !filch_deque_push(&deque, &one, 1)) {
                filch_thread_yield();
                one = one ? one : send_out();
            }
        }
        filch_u32_store_release(&closed, 1);
    }
}

static void spsc(void)
{
    reset(UINT16_MAX - 5);
    harness_together(2, push_all);
    all_home();
}

static void spmc(void)
{
    reset(UINT16_MAX - 5);
    harness_together(1 + THIEVES, push_all);
    all_home();
}

/* The owner empties a full deque against the thieves: what each gets is in order, falling for the owner. */
static void empty_it(unsigned number)
{
    if (number) {
        thief(number, true);
        return;
    }
    uint64_t last = UINT64_MAX;
    for (struct filch_task *one; (one = filch_deque_pop(&deque));) {
        uint64_t cargo = bring_home(one);
        CHECK(cargo < last);
        last = cargo;
    }
    filch_u32_store_release(&closed, 1);
}

static void stampede(void)
{
    for (uint64_t round = harness_steps(100); round > 0; round--) {
        reset((uint16_t)harness_random());
        for (unsigned i = 0; i < FILCH_RING; i++) {
            struct filch_task *one = send_out();
            CHECK(filch_deque_push(&deque, &one, 1));
        }
        harness_together(1 + THIEVES, empty_it);
        all_home();
    }
}

/* The owner does everything that an owner can, at random, in bursts that fill and empty the ring. */
static void everything(unsigned number)
{
    if (number) {
        thief(number, false);
        return;
    }
    for (uint64_t i = harness_steps(60000); i > 0; i--) {
        struct filch_task *one, *two[2];
        unsigned burst = (unsigned)harness_below(4);
        switch (harness_below(4)) {
        case 0:
            while (burst-- && (one = filch_deque_pop(&deque)))
                bring_home(one);
            break;
        case 1:
            while (burst-- && (one = filch_deque_take(&deque)))
                bring_home(one);
            break;
        case 2:
            two[0] = send_out();
            two[1] = send_out();
            if (two[0] && two[1] && filch_deque_push(&deque, two, 2))
                break;
            for (int each = 0; each < 2; each++)
                if (two[each])
                    bring_home(two[each]);
            break;
        default:
            while (burst-- && (one = send_out()))
                give_away(one);
        }
    }
    filch_u32_store_release(&closed, 1);
}

static void stress(void)
{
    reset(UINT16_MAX - 100);
    harness_together(1 + THIEVES, everything);
    all_home();
}

static void feed_until_all_have(unsigned number)
{
    if (number) {
        thief(number, false);
        return;
    }
    for (bool all = false; !all;) {
        struct filch_task *one = send_out();
        if (one)
            give_away(one);
        else
            filch_thread_yield();
        all = true;
        for (unsigned i = 1; i <= THIEVES; i++)
            all = all && filch_u64_load_acquire(&thefts[i]) > 0;
    }
    filch_u32_store_release(&closed, 1);
}

static void no_starvation(void)
{
    reset(0);
    harness_together(1 + THIEVES, feed_until_all_have);
    all_home();
}

/* What is left when everybody has gone is there once, in order. */
static void leave_some(unsigned number)
{
    struct filch_task *loot[FILCH_LOOT];
    if (number == 0)
        for (uint64_t i = harness_steps(1000); i > 0; i--) {
            struct filch_task *one = send_out();
            if (one)
                give_away(one);
        }
    else
        for (uint64_t i = harness_steps(200); i > 0; i--)
            for (int count = filch_deque_steal(&deque, loot); count > 0; count--)
                bring_home(loot[count - 1]);
}

static void destructors(void)
{
    reset(UINT16_MAX - 50);
    harness_together(1 + THIEVES, leave_some);
    uint64_t last = 0, left = filch_deque_length(&deque);
    CHECK(left == filch_u64_load_acquire(&sent) - filch_u64_load_acquire(&done));
    for (struct filch_task *one; (one = filch_deque_take(&deque));) {
        uint64_t cargo = bring_home(one);
        CHECK(cargo > last);
        last = cargo;
    }
    all_home();
}

int main(void)
{
    harness_start("deque");
    CASE(smoke);
    CASE(empty);
    CASE(half_rounded_up_but_no_more_than_the_most);
    CASE(full);
    CASE(model);
    CASE(spsc);
    CASE(spmc);
    CASE(stampede);
    CASE(stress);
    CASE(no_starvation);
    CASE(destructors);
    return 0;
}
