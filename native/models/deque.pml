/* The deque: native/README.md, "The deque"; the code is core/deque.c.

   A ring of 2, positions modulo 4, an owner that pushes, pops and takes in any order, and two thieves. Slots are read
   and written in steps of their own; the word of the ends changes in one.

   Broken twins: NO_LAG (a claim frees its slots before they are copied), SPECULATIVE (copies before the claim, and
   trusts that the word is as it was), TWO_THIEVES (claims while another one copies), BLIND_POP (pops without
   comparing). */

#define RING 2
#define AROUND 4
#define TASKS 3
#define THIEVES 2
#define length(b, t) (((b) - (t) + AROUND) % AROUND)

byte lag, top, bottom;
byte slots[RING];
bool out[TASKS + 1]; /* tasks are 1, 2, ... */
byte count_out, gone;

inline hand_out(task) { atomic { assert(task > 0 && !out[task]); out[task] = true; count_out++ } }

active proctype owner() {
    byte next = 1, mine, my_bottom, my_top;
    bool moved;
    do
    :: next <= TASKS && length(bottom, lag) < RING ->
        slots[bottom % RING] = next;
        bottom = (bottom + 1) % AROUND;
        next++
    :: true -> /* pop */
        atomic { my_bottom = bottom; my_top = top }
        moved = false;
        atomic {
            if
#ifdef BLIND_POP
            :: my_bottom != my_top -> bottom = (my_bottom + AROUND - 1) % AROUND; moved = true
#else
            :: bottom != top -> my_bottom = bottom; bottom = (bottom + AROUND - 1) % AROUND; moved = true
#endif
            :: else
            fi
        }
        if
        :: moved -> mine = slots[(my_bottom + AROUND - 1) % AROUND % RING]; hand_out(mine)
        :: else -> if :: next > TASKS -> break :: else fi
        fi
    :: true -> /* take */
        atomic {
            moved = bottom != top;
            my_top = top;
            if
            :: moved && lag == top -> top = (top + 1) % AROUND; lag = top
            :: moved && lag != top -> top = (top + 1) % AROUND
            :: else
            fi
        }
        if :: moved -> mine = slots[my_top % RING]; hand_out(mine) :: else fi
    od;
    gone++
}

active [THIEVES] proctype thief() {
    byte first, count, my_bottom, my_lag, loot[RING];
    bool moved;
    do
    :: break
    :: atomic { first = top; my_bottom = bottom; my_lag = lag }
        count = (length(my_bottom, first) + 1) / 2;
#ifdef SPECULATIVE
        loot[0] = slots[first % RING];
#endif
        moved = false;
        atomic {
            if
#ifdef TWO_THIEVES
            :: count > 0 && top == first && bottom == my_bottom && lag == my_lag ->
#else
            :: count > 0 && top == first && bottom == my_bottom && lag == my_lag && lag == top ->
#endif
                moved = true;
                top = (first + count) % AROUND;
#if defined(NO_LAG) || defined(SPECULATIVE)
                lag = top
#endif
            :: else
            fi
        }
        if
        :: moved ->
            assert(count == 1); /* half of 2 */
#ifndef SPECULATIVE
            loot[0] = slots[first % RING];
#endif
#if !defined(NO_LAG) && !defined(SPECULATIVE)
            atomic { lag = top }
#endif
            hand_out(loot[0])
        :: else
        fi
    od;
    gone++
}

active proctype witness() {
    gone == 1 + THIEVES;
    /* The owner may have found it empty while a thief had the last ones in its hand; they are out by now. */
    assert(count_out == TASKS && top == bottom && lag == top)
}
