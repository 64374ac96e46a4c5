/* The seam: every atomic operation of the core goes through this file.

   Nothing else includes <stdatomic.h>. So a test can put a pause in front of each operation (FILCH_INTERPOSE), and a
   reader finds each order by its name at the place of use. The types are structs, so that plain `=` does not compile.

   Two rules keep the core checkable by a thread sanitizer, which does not understand fences:
   1. What one thread writes for another is published by a release operation and read after an acquire operation on
   the same word, never by a fence.
   2. The one fence, `filch_fence_full`, is for the other need alone: my store before my load ("announce, fence, look
   again"), on both sides. No release or acquire gives that order. Without the fence's effect the models in
   native/models fail; on x86 the tests cannot, since every compare-and-swap and every mutex there has that effect
   too. */
#ifndef FILCH_ATOMICS_H
#define FILCH_ATOMICS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Bytes. Words that different threads write lie this far apart: two cache lines, since hardware fetches them in
   pairs. */
#define FILCH_LINE 128

#ifdef FILCH_INTERPOSE
void filch_interpose(void); /* defined by the test; may yield or sleep */
#else
static inline void filch_interpose(void)
{
}
#endif

/* Declares `filch_atomic_NAME` and its operations. The order is in the name; a compare-and-swap that fails has read the
   word with acquire. `init` is for words that no other thread can see yet. */
#define FILCH_ATOMIC(NAME, TYPE)                                                                                       \
    typedef struct {                                                                                                   \
        _Atomic TYPE raw;                                                                                              \
    } filch_atomic_##NAME;                                                                                             \
    static inline void filch_##NAME##_init(filch_atomic_##NAME *word, TYPE value)                                      \
    {                                                                                                                  \
        atomic_init(&word->raw, value);                                                                                \
    }                                                                                                                  \
    static inline TYPE filch_##NAME##_load_relaxed(const filch_atomic_##NAME *word)                                    \
    {                                                                                                                  \
        filch_interpose();                                                                                             \
        return atomic_load_explicit(&word->raw, memory_order_relaxed);                                                 \
    }                                                                                                                  \
    static inline TYPE filch_##NAME##_load_acquire(const filch_atomic_##NAME *word)                                    \
    {                                                                                                                  \
        filch_interpose();                                                                                             \
        return atomic_load_explicit(&word->raw, memory_order_acquire);                                                 \
    }                                                                                                                  \
    static inline void filch_##NAME##_store_relaxed(filch_atomic_##NAME *word, TYPE value)                             \
    {                                                                                                                  \
        filch_interpose();                                                                                             \
        atomic_store_explicit(&word->raw, value, memory_order_relaxed);                                                \
    }                                                                                                                  \
    static inline void filch_##NAME##_store_release(filch_atomic_##NAME *word, TYPE value)                             \
    {                                                                                                                  \
        filch_interpose();                                                                                             \
        atomic_store_explicit(&word->raw, value, memory_order_release);                                                \
    }                                                                                                                  \
    static inline TYPE filch_##NAME##_exchange_acq_rel(filch_atomic_##NAME *word, TYPE value)                          \
    {                                                                                                                  \
        filch_interpose();                                                                                             \
        return atomic_exchange_explicit(&word->raw, value, memory_order_acq_rel);                                      \
    }                                                                                                                  \
    static inline TYPE filch_##NAME##_fetch_add_acq_rel(filch_atomic_##NAME *word, TYPE value)                         \
    {                                                                                                                  \
        filch_interpose();                                                                                             \
        return atomic_fetch_add_explicit(&word->raw, value, memory_order_acq_rel);                                     \
    }                                                                                                                  \
    static inline TYPE filch_##NAME##_fetch_or_acq_rel(filch_atomic_##NAME *word, TYPE value)                          \
    {                                                                                                                  \
        filch_interpose();                                                                                             \
        return atomic_fetch_or_explicit(&word->raw, value, memory_order_acq_rel);                                      \
    }                                                                                                                  \
    static inline bool filch_##NAME##_cas_acq_rel(filch_atomic_##NAME *word, TYPE *seen, TYPE value)                   \
    {                                                                                                                  \
        filch_interpose();                                                                                             \
        return atomic_compare_exchange_strong_explicit(&word->raw, seen, value, memory_order_acq_rel,                  \
                                                       memory_order_acquire);                                          \
    }

FILCH_ATOMIC(u32, uint32_t)
FILCH_ATOMIC(u64, uint64_t)

/* gcc warns that the thread sanitizer does not understand fences; by rule 1 above it need not. */
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
/* My stores before it, then my loads after it, in one order that all threads that fence agree upon. */
static inline void filch_fence_full(void)
{
    filch_interpose();
    atomic_thread_fence(memory_order_seq_cst);
}
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 11
#pragma GCC diagnostic pop
#endif

#endif
