/* Collective calls: what their files know of each other. */
#ifndef WEFT_MPIIO_TOGETHER_H
#define WEFT_MPIIO_TOGETHER_H

#include "mpiio.h"

/* Which rank works on which part of the file in which round: two-phase I/O cuts what is accessed
 * into one domain for each owner, the interleaved form deals parts out one after the other. The
 * simulator's plan (lab/piosim, collective/group.rs) is the same. */
typedef struct plan {
    int is_interleaved;
    uint64_t min, max; /* first byte, and the one behind the last */
    uint64_t owners, buffer, rounds;
} plan;

typedef struct part {
    uint64_t offset, bytes;
} part;

/* Where a rank's access lies. */
typedef struct span {
    int64_t first, end;
    int64_t bytes;
    int64_t error; /* nobody does anything if a rank has one */
} span;

/* Bytes of a file, as ranks tell them to each other. */
typedef struct extent {
    uint64_t offset, bytes;
} extent;

/* Room for one part of the file, and what of it is there. */
typedef struct slot {
    file *f;
    part part;
    char *bytes;
    extent *extents; /* to write, ascending */
    size_t count;
    uint64_t end; /* of the file, if a read has met it; else UINT64_MAX */
} slot;

/* A collective call of this rank. */
typedef struct together {
    file *f;
    const portion *a;
    plan plan;
    int owner; /* which this rank is, or -1 */
    slot slots[2];
    worker *worker; /* NULL: reads and writes happen between exchanges */
    int error;      /* the first one, of this rank */
} together;

/* plan.c */
plan plan_of(enum method method, const span *spans, int ranks, int owners, uint64_t buffer);
int plan_pays(const plan *plan, const span *spans, int ranks);
part plan_part(const plan *plan, uint64_t owner, uint64_t round);

/* slots.c */
int slot_write(void *slot);
int slot_read(void *slot);
void slot_add(slot *slot, const extent *extents, size_t count);
void slot_settle(slot *slot);

/* exchange.c */
void exchange_writes(together *t, uint64_t round, slot *slot);
void exchange_reads(together *t, uint64_t round, slot *slot);

/* A rank that has no memory left cannot tell the others that it will not go on: the job ends. */
void *need(const together *t, size_t bytes);

#endif
