/* One round of a collective call: ranks tell the owners of parts what they have or want there, and
 * the data goes from those who write to the owners, or from the owners to those who read.
 */
#include "together.h"

#include <stdlib.h>
#include <string.h>

enum { TAG_LIST = 1, TAG_DATA = 2 };

/* How much one rank has in the part of another. */
typedef struct amount {
    uint64_t extents, bytes;
} amount;

/* What this rank has in the part of an owner: bytes of its access, and where they are. */
typedef struct share {
    int rank; /* of the owner */
    uint64_t from, bytes;
    size_t first; /* of its extents in `mine` */
    size_t extents;
} share;

/* Messages on their way, and memory that they need. */
typedef struct round {
    const together *t;
    share *shares; /* for each owner */
    extent *mine;
    size_t count, room;
    amount *out, *in; /* for each rank: what I have in its part, what it has in mine */
    MPI_Request *requests;
    int sent;
} round;

void *need(const together *t, size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        PMPI_Abort(t->f->comm, MPI_ERR_NO_MEM);
    return memory;
}

static void add_extent(round *r, uint64_t offset, uint64_t bytes)
{
    if (r->count == r->room) {
        r->room = r->room ? 2 * r->room : 256;
        extent *more = need(r->t, r->room * sizeof *more);
        if (r->count)
            memcpy(more, r->mine, r->count * sizeof *more);
        free(r->mine);
        r->mine = more;
    }
    r->mine[r->count++] = (extent){offset, bytes};
}

/* What of my access lies in the part of an owner. It is one piece of the access, as views ascend. */
static share share_of(round *r, int rank, part part)
{
    const portion *a = r->t->a;
    tiling tiling = view_tiling(&r->t->f->view);
    share s = {rank, 0, 0, r->count, 0};
    if (part.bytes == 0 || a->bytes == 0)
        return s;
    uint64_t from = shown_before(tiling, (int64_t)part.offset), end = shown_before(tiling, (int64_t)(part.offset + part.bytes));
    from = from > a->at ? from : a->at;
    end = end < a->at + a->bytes ? end : a->at + a->bytes;
    if (from >= end)
        return s;
    walk w;
    walk_begin(&w, tiling, from);
    for (uint64_t at = from, got; at < end; at += got) {
        int64_t offset;
        got = walk_next(&w, end - at, &offset);
        add_extent(r, (uint64_t)offset, got);
    }
    s.from = from - a->at;
    s.bytes = end - from;
    s.extents = r->count - s.first;
    return s;
}

static int rank_of(const together *t, uint64_t owner)
{
    return (int)(owner * (uint64_t)t->f->ranks / t->plan.owners);
}

/* Everybody knows then what comes. */
static void round_begin(round *r, const together *t, uint64_t number)
{
    size_t ranks = (size_t)t->f->ranks, owners = (size_t)t->plan.owners;
    *r = (round){.t = t};
    r->shares = need(t, owners * sizeof *r->shares);
    r->out = need(t, ranks * sizeof *r->out);
    r->in = need(t, ranks * sizeof *r->in);
    r->requests = need(t, 4 * ranks * sizeof(MPI_Request));
    memset(r->out, 0, ranks * sizeof *r->out);
    for (uint64_t owner = 0; owner < owners; owner++) {
        share s = share_of(r, rank_of(t, owner), plan_part(&t->plan, owner, number));
        r->shares[owner] = s;
        r->out[s.rank] = (amount){s.extents, s.bytes};
    }
    PMPI_Alltoall(r->out, 2, MPI_UINT64_T, r->in, 2, MPI_UINT64_T, t->f->comm);
}

static void round_end(round *r)
{
    free(r->shares);
    free(r->mine);
    free(r->out);
    free(r->in);
    free(r->requests);
}

static MPI_Request *next_request(round *r)
{
    return &r->requests[r->sent++];
}

static void send_list(round *r, const share *s)
{
    PMPI_Isend(r->mine + s->first, (int)(2 * s->extents), MPI_UINT64_T, s->rank, TAG_LIST, r->t->f->comm, next_request(r));
}

/* The memory of the program if bytes of an access lie there side by side, or NULL. */
static char *in_place(const portion *a, uint64_t from)
{
    int is_piece = a->shape->is_solid || (a->shape->count == 1 && a->bytes <= a->shape->bytes);
    return is_piece ? (char *)a->memory + a->shape->runs[0].offset + from : NULL;
}

/* Bytes of shares whose data needs a buffer of its own; the own part needs none. */
static uint64_t buffered(const round *r)
{
    uint64_t sum = 0;
    for (uint64_t owner = 0; owner < r->t->plan.owners; owner++)
        if (r->shares[owner].rank != r->t->f->rank && !in_place(r->t->a, r->shares[owner].from))
            sum += r->shares[owner].bytes;
    return sum;
}

/* Between the part and a packed piece of data. */
static void put(slot *slot, const extent *extents, size_t count, const char *data)
{
    for (size_t i = 0; i < count; data += extents[i++].bytes)
        memcpy(slot->bytes + (extents[i].offset - slot->part.offset), data, extents[i].bytes);
}

static void pick(const slot *slot, const extent *extents, size_t count, char *data)
{
    for (size_t i = 0; i < count; data += extents[i++].bytes)
        memcpy(data, slot->bytes + (extents[i].offset - slot->part.offset), extents[i].bytes);
}

static void send_writes(round *r, char *buffer)
{
    const portion *a = r->t->a;
    for (uint64_t owner = 0; owner < r->t->plan.owners; owner++) {
        const share *s = &r->shares[owner];
        if (s->bytes == 0 || s->rank == r->t->f->rank)
            continue;
        char *data = in_place(a, s->from);
        if (!data) {
            data = buffer;
            gather(data, a, s->from, s->bytes);
            buffer += s->bytes;
        }
        send_list(r, s);
        PMPI_Isend(data, (int)s->bytes, MPI_BYTE, s->rank, TAG_DATA, r->t->f->comm, next_request(r));
    }
}

/* What this rank has for itself. */
static void write_own(round *r, slot *slot)
{
    const share *s = &r->shares[r->t->owner];
    const portion *a = r->t->a;
    uint64_t at = s->from;
    for (size_t i = 0; i < s->extents; at += r->mine[s->first + i++].bytes) {
        const extent *e = &r->mine[s->first + i];
        gather(slot->bytes + (e->offset - slot->part.offset), a, at, e->bytes);
    }
    slot_add(slot, r->mine + s->first, s->extents);
}

/* Takes what ranks from `first` on have for the part, as many as there is room for; returns the
 * next one. */
static int receive_writes(round *r, slot *slot, int first)
{
    const together *t = r->t;
    uint64_t bytes = 0, extents = 0;
    int end = first, wanted = 0;
    for (; end < t->f->ranks && (bytes == 0 || bytes + r->in[end].bytes <= t->plan.buffer); end++) {
        if (end != t->f->rank) {
            bytes += r->in[end].bytes;
            extents += r->in[end].extents;
        }
    }
    char *data = need(t, bytes), *next = data;
    extent *list = need(t, extents * sizeof *list), *next_list = list;
    MPI_Request *requests = need(t, 2 * (size_t)(end - first) * sizeof *requests);
    for (int rank = first; rank < end; rank++) {
        if (rank == t->f->rank || r->in[rank].bytes == 0)
            continue;
        PMPI_Irecv(next_list, (int)(2 * r->in[rank].extents), MPI_UINT64_T, rank, TAG_LIST, t->f->comm, &requests[wanted++]);
        PMPI_Irecv(next, (int)r->in[rank].bytes, MPI_BYTE, rank, TAG_DATA, t->f->comm, &requests[wanted++]);
        next_list += r->in[rank].extents;
        next += r->in[rank].bytes;
    }
    PMPI_Waitall(wanted, requests, MPI_STATUSES_IGNORE);
    put(slot, list, extents, data);
    slot_add(slot, list, extents);
    free(requests);
    free(list);
    free(data);
    return end;
}

void exchange_writes(together *t, uint64_t number, slot *slot)
{
    round r;
    round_begin(&r, t, number);
    char *buffer = need(t, buffered(&r));
    send_writes(&r, buffer);
    if (slot) {
        size_t extents = 0;
        for (int rank = 0; rank < t->f->ranks; rank++)
            extents += r.in[rank].extents;
        free(slot->extents);
        slot->extents = need(t, extents * sizeof *slot->extents);
        slot->count = 0;
        slot->part = plan_part(&t->plan, (uint64_t)t->owner, number);
        write_own(&r, slot);
        for (int rank = 0; rank < t->f->ranks;)
            rank = receive_writes(&r, slot, rank);
        slot_settle(slot);
    }
    PMPI_Waitall(r.sent, r.requests, MPI_STATUSES_IGNORE);
    free(buffer);
    round_end(&r);
}

/* Asks the owners; answers go where the program wants them, or into the buffer. */
static void ask_reads(round *r, char *buffer)
{
    for (uint64_t owner = 0; owner < r->t->plan.owners; owner++) {
        const share *s = &r->shares[owner];
        if (s->bytes == 0 || s->rank == r->t->f->rank)
            continue;
        char *data = in_place(r->t->a, s->from);
        if (!data) {
            data = buffer;
            buffer += s->bytes;
        }
        PMPI_Irecv(data, (int)s->bytes, MPI_BYTE, s->rank, TAG_DATA, r->t->f->comm, next_request(r));
        send_list(r, s);
    }
}

/* Answers ranks from `first` on, as many as there is room for; returns the next one. */
static int answer_reads(round *r, const slot *slot, int first)
{
    const together *t = r->t;
    uint64_t bytes = 0;
    int end = first, sent = 0;
    for (; end < t->f->ranks && (bytes == 0 || bytes + r->in[end].bytes <= t->plan.buffer); end++)
        bytes += end == t->f->rank ? 0 : r->in[end].bytes;
    char *data = need(t, bytes), *next = data;
    MPI_Request *requests = need(t, (size_t)(end - first) * sizeof *requests);
    for (int rank = first; rank < end; rank++) {
        if (rank == t->f->rank || r->in[rank].bytes == 0)
            continue;
        size_t extents = (size_t)r->in[rank].extents;
        extent *list = need(t, extents * sizeof *list);
        PMPI_Recv(list, (int)(2 * extents), MPI_UINT64_T, rank, TAG_LIST, t->f->comm, MPI_STATUS_IGNORE);
        pick(slot, list, extents, next);
        free(list);
        PMPI_Isend(next, (int)r->in[rank].bytes, MPI_BYTE, rank, TAG_DATA, t->f->comm, &requests[sent++]);
        next += r->in[rank].bytes;
    }
    PMPI_Waitall(sent, requests, MPI_STATUSES_IGNORE);
    free(requests);
    free(data);
    return end;
}

static void read_own(round *r, const slot *slot)
{
    const share *s = &r->shares[r->t->owner];
    uint64_t at = s->from;
    for (size_t i = 0; i < s->extents; at += r->mine[s->first + i++].bytes) {
        const extent *e = &r->mine[s->first + i];
        scatter(slot->bytes + (e->offset - slot->part.offset), r->t->a, at, e->bytes);
    }
}

void exchange_reads(together *t, uint64_t number, slot *slot)
{
    round r;
    round_begin(&r, t, number);
    char *buffer = need(t, buffered(&r)), *next = buffer;
    ask_reads(&r, buffer);
    if (slot) {
        for (int rank = 0; rank < t->f->ranks;)
            rank = answer_reads(&r, slot, rank);
        read_own(&r, slot);
    }
    PMPI_Waitall(r.sent, r.requests, MPI_STATUSES_IGNORE);
    for (uint64_t owner = 0; owner < t->plan.owners; owner++) {
        const share *s = &r.shares[owner];
        if (s->bytes == 0 || s->rank == t->f->rank || in_place(t->a, s->from))
            continue;
        scatter(next, t->a, s->from, s->bytes);
        next += s->bytes;
    }
    free(buffer);
    round_end(&r);
}
