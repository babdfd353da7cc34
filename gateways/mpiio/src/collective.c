/* Collective calls, as the study of 2009 describes them and the simulator models them: direct,
 * two-phase, interleaved two-phase, and the last one with two buffers, so that the servers work
 * while the next round's data is exchanged.
 */
#include "together.h"

#include <stdlib.h>

/* From the first byte to the last; 0 to 0 without any. */
static span span_of(file *f, const portion *a, int error)
{
    span s = {0, 0, error == MPI_SUCCESS ? (int64_t)a->bytes : 0, error};
    if (s.bytes == 0 || !f->view.shape.is_ascending)
        return s;
    walk w;
    walk_begin(&w, view_tiling(&f->view), a->at);
    walk_next(&w, 1, &s.first);
    walk_begin(&w, view_tiling(&f->view), a->at + a->bytes - 1);
    walk_next(&w, 1, &s.end);
    s.end++;
    return s;
}

/* Starts a read or write of a part, or does it if there is no thread for it. */
static void begin_job(together *t, int (*job)(void *), slot *slot)
{
    if (t->worker) {
        worker_start(t->worker, job, slot);
        return;
    }
    int error = job(slot);
    t->error = t->error != MPI_SUCCESS ? t->error : error;
}

static void end_job(together *t)
{
    int error = t->worker ? worker_wait(t->worker) : MPI_SUCCESS;
    t->error = t->error != MPI_SUCCESS ? t->error : error;
}

static slot *slot_for(together *t, uint64_t round)
{
    return t->owner < 0 ? NULL : &t->slots[t->slots[1].bytes ? round % 2 : 0];
}

static void write_rounds(together *t)
{
    for (uint64_t round = 0; round < t->plan.rounds; round++) {
        slot *slot = slot_for(t, round);
        exchange_writes(t, round, slot);
        end_job(t);
        if (slot)
            begin_job(t, slot_write, slot);
    }
    end_job(t);
}

static void begin_read(together *t, uint64_t round)
{
    slot *slot = slot_for(t, round);
    if (!slot || round >= t->plan.rounds)
        return;
    slot->part = plan_part(&t->plan, (uint64_t)t->owner, round);
    begin_job(t, slot_read, slot);
}

static void read_rounds(together *t)
{
    begin_read(t, 0);
    for (uint64_t round = 0; round < t->plan.rounds; round++) {
        end_job(t);
        if (t->worker)
            begin_read(t, round + 1);
        exchange_reads(t, round, slot_for(t, round));
        if (!t->worker)
            begin_read(t, round + 1);
    }
}

static void prepare(together *t)
{
    t->owner = -1;
    for (uint64_t owner = 0; owner < t->plan.owners; owner++)
        if ((int)(owner * (uint64_t)t->f->ranks / t->plan.owners) == t->f->rank)
            t->owner = (int)owner;
    int is_double = t->f->hints.method == DOUBLE_BUFFERED && worker_of(t->f, &t->worker) == MPI_SUCCESS;
    uint64_t all = t->plan.max - t->plan.min;
    t->slots[0].end = t->slots[1].end = UINT64_MAX;
    for (int i = 0; i <= is_double && t->owner >= 0; i++) {
        t->slots[i].f = t->f;
        t->slots[i].bytes = need(t, all < t->plan.buffer ? all : t->plan.buffer);
    }
}

/* All hear the same: whether all is written, or where the file ends that was read. */
static int settle(together *t, int writes, uint64_t *done)
{
    uint64_t end = t->slots[0].end < t->slots[1].end ? t->slots[0].end : t->slots[1].end;
    int64_t mine[2] = {t->error, end > INT64_MAX ? -INT64_MAX : -(int64_t)end}, all[2];
    int error = PMPI_Allreduce(mine, all, 2, MPI_INT64_T, MPI_MAX, t->f->comm);
    if (error == MPI_SUCCESS)
        error = (int)all[0];
    *done = error == MPI_SUCCESS ? t->a->bytes : 0;
    if (error == MPI_SUCCESS && !writes && all[1] > -INT64_MAX && t->a->bytes > 0) {
        uint64_t before = shown_before(view_tiling(&t->f->view), -all[1]);
        uint64_t there = before > t->a->at ? before - t->a->at : 0;
        *done = there < t->a->bytes ? there : t->a->bytes;
    }
    return error;
}

static int together_do(together *t, int writes, uint64_t *done)
{
    prepare(t);
    if (writes)
        write_rounds(t);
    else
        read_rounds(t);
    for (int i = 0; i < 2; i++) {
        free(t->slots[i].extents);
        free(t->slots[i].bytes);
    }
    return settle(t, writes, done);
}

/* `error` is what this rank has found wrong with its access: then nobody does anything. */
int collective(file *f, const portion *a, int writes, int error, uint64_t *done)
{
    together t = {.f = f, .a = a};
    if (f->hints.method == DIRECT)
        return error != MPI_SUCCESS ? error : direct(f, a, writes, done);
    if (f->is_atomic)
        return agree(f, error != MPI_SUCCESS ? error : direct(f, a, writes, done));
    span *spans = need(&t, (size_t)f->ranks * sizeof *spans);
    span mine = span_of(f, a, error);
    int told = PMPI_Allgather(&mine, 4, MPI_INT64_T, spans, 4, MPI_INT64_T, f->comm);
    t.plan = plan_of(f->hints.method, spans, f->ranks, f->hints.nodes, f->hints.buffer);
    int pays = plan_pays(&t.plan, spans, f->ranks);
    for (int rank = 0; rank < f->ranks && told == MPI_SUCCESS; rank++) {
        error = error > spans[rank].error ? error : (int)spans[rank].error;
        /* Data that goes back and forth in the file. */
        pays = pays && (spans[rank].bytes == 0 || spans[rank].end > spans[rank].first);
    }
    free(spans);
    if (error != MPI_SUCCESS || told != MPI_SUCCESS)
        return told != MPI_SUCCESS ? told : error;
    return pays ? together_do(&t, writes, done) : agree(f, direct(f, a, writes, done));
}
