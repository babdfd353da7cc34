/* Who works on which part of a file when. No messages, no I/O. */
#include "together.h"

/* So many bytes between the first and the last one may belong to one that is accessed. */
enum { HOLES_MAX = 64 };

static uint64_t rounded_up(uint64_t bytes, uint64_t by)
{
    return bytes / by + (bytes % by != 0);
}

plan plan_of(enum method method, const span *spans, int ranks, int owners, uint64_t buffer)
{
    plan plan = {method != TWO_PHASE, UINT64_MAX, 0, (uint64_t)owners, buffer, 0};
    for (int rank = 0; rank < ranks; rank++) {
        if (spans[rank].bytes == 0)
            continue;
        uint64_t first = (uint64_t)spans[rank].first, end = (uint64_t)spans[rank].end;
        plan.min = first < plan.min ? first : plan.min;
        plan.max = end > plan.max ? end : plan.max;
    }
    if (plan.min >= plan.max) {
        plan.min = plan.max;
        return plan;
    }
    uint64_t all = plan.max - plan.min;
    /* The last owner takes what a division into domains leaves over. */
    plan.rounds = plan.is_interleaved ? rounded_up(all, plan.owners * buffer) : rounded_up(all / plan.owners + all % plan.owners, buffer);
    return plan;
}

/* Accesses that follow each other rank by rank are as good without an exchange. So are those that
 * are a small share of what lies between the first and the last byte: rounds go through all of it.
 */
int plan_pays(const plan *plan, const span *spans, int ranks)
{
    uint64_t bytes = 0;
    int is_mixed = 0;
    for (int rank = 0; rank < ranks; rank++) {
        if (__builtin_add_overflow(bytes, (uint64_t)spans[rank].bytes, &bytes))
            bytes = UINT64_MAX;
        is_mixed |= rank > 0 && spans[rank].first <= spans[rank - 1].end;
    }
    return is_mixed && (plan->max - plan->min) / HOLES_MAX <= bytes;
}

part plan_part(const plan *plan, uint64_t owner, uint64_t round)
{
    uint64_t offset, limit = plan->max;
    if (plan->is_interleaved) {
        offset = plan->min + (round * plan->owners + owner) * plan->buffer;
    } else {
        uint64_t share = (plan->max - plan->min) / plan->owners;
        if (owner + 1 < plan->owners)
            limit = plan->min + (owner + 1) * share;
        offset = plan->min + owner * share + round * plan->buffer;
    }
    uint64_t left = offset < limit ? limit - offset : 0;
    return (part){offset, left < plan->buffer ? left : plan->buffer};
}
