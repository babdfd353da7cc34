/* Requests of the program, each with a number of its own: MPI gives handles anew. */
#include "mpitrace.h"

#include <stdlib.h>

#define ROOM_MOST ((size_t)1 << 22)

typedef struct entry {
    uint64_t handle; /* 0: none */
    uint32_t number;
    int is_wild, is_kept, is_shared;
    struct older *older; /* MPICH gives all requests that are over at once the same handle */
    request_facts facts;
} entry;

typedef struct older {
    uint32_t number;
    struct older *next;
} older;

static entry *table;
static size_t used, room; /* room is a power of two */
static uint32_t ever;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t handle_of(MPI_Request request)
{
    uint64_t handle = 0;
    if (request != MPI_REQUEST_NULL)
        memcpy(&handle, &request, sizeof request);
    return handle;
}

static size_t place(const entry *in, size_t size, uint64_t handle)
{
    size_t at = (size_t)(handle * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (size - 1);
    while (in[at].handle != 0 && in[at].handle != handle)
        at = (at + 1) & (size - 1);
    return at;
}

static entry *find(uint64_t handle)
{
    if (handle == 0 || room == 0)
        return NULL;
    entry *there = &table[place(table, room, handle)];
    return there->handle ? there : NULL;
}

static entry *add(uint64_t handle)
{
    if (handle == 0)
        return NULL;
    if (2 * (used + 1) > room) {
        size_t size = room ? 2 * room : 64;
        entry *more = size <= ROOM_MOST ? calloc(size, sizeof *more) : NULL;
        if (!more)
            return NULL;
        for (size_t at = 0; at < room; at++)
            if (table[at].handle)
                more[place(more, size, table[at].handle)] = table[at];
        free(table);
        table = more;
        room = size;
    }
    entry *there = &table[place(table, room, handle)];
    used += there->handle == 0;
    *there = (entry){.handle = handle};
    return there;
}

static void take_out(uint64_t handle)
{
    entry *there = find(handle);
    if (!there)
        return;
    size_t at = (size_t)(there - table);
    table[at].handle = 0;
    used--;
    /* What lies behind it may have its place here. */
    for (size_t next = (at + 1) & (room - 1); table[next].handle; next = (next + 1) & (room - 1)) {
        entry moved = table[next];
        table[next].handle = 0;
        table[place(table, room, moved.handle)] = moved;
    }
}

static void is_over(entry *there)
{
    older *before = there->older;
    if (!before) {
        take_out(there->handle);
        return;
    }
    there->number = before->number;
    there->older = before->next;
    free(before);
}

uint32_t request_new(MPI_Request request, int is_wild)
{
    pthread_mutex_lock(&lock);
    uint32_t number = ++ever;
    entry *there = find(handle_of(request));
    older *before = there && !there->is_kept ? malloc(sizeof *before) : NULL;
    if (before) {
        *before = (older){there->number, there->older};
        there->older = before;
        there->is_shared = 1;
    } else {
        there = add(handle_of(request));
    }
    if (there) {
        there->number = number;
        there->is_wild = is_wild;
    }
    pthread_mutex_unlock(&lock);
    return number;
}

void request_kept(MPI_Request request, const request_facts *facts)
{
    pthread_mutex_lock(&lock);
    entry *there = add(handle_of(request));
    if (there) {
        there->is_kept = 1;
        there->facts = *facts;
        there->is_wild = facts->peer == MPI_ANY_SOURCE || facts->tag == MPI_ANY_TAG;
    }
    pthread_mutex_unlock(&lock);
}

const request_facts *request_started(MPI_Request request, uint32_t *number)
{
    static __thread request_facts facts;
    pthread_mutex_lock(&lock);
    entry *there = find(handle_of(request));
    int is_kept = there && there->is_kept;
    if (is_kept) {
        *number = there->number = ++ever;
        facts = there->facts;
    }
    pthread_mutex_unlock(&lock);
    return is_kept ? &facts : NULL;
}

void request_freed(MPI_Request request)
{
    pthread_mutex_lock(&lock);
    entry *there = find(handle_of(request));
    if (there)
        is_over(there);
    pthread_mutex_unlock(&lock);
}

void waits_begin(waits *w, int count, const MPI_Request *requests, int wants_statuses)
{
    int is_wild = 0;
    w->count = count > 0 ? count : 0;
    w->statuses = NULL;
    w->list = w->count <= (int)(sizeof w->few / sizeof *w->few) ? w->few : malloc((size_t)w->count * sizeof *w->list);
    if (!w->list)
        w->count = 0;
    pthread_mutex_lock(&lock);
    for (int at = 0; at < w->count; at++) {
        uint64_t handle = handle_of(requests[at]);
        const entry *there = find(handle);
        w->list[at] = there ? (waited){handle, there->number, there->is_wild, there->is_kept, there->is_shared} : (waited){0};
        is_wild |= w->list[at].is_wild;
    }
    pthread_mutex_unlock(&lock);
    if (is_wild && !wants_statuses)
        w->statuses = calloc((size_t)count, sizeof *w->statuses);
}

void waits_done(state *s, waits *w, int which, const MPI_Status *status)
{
    if (which < 0 || which >= w->count || w->list[which].number == 0)
        return;
    const waited *one = &w->list[which];
    uint32_t number = one->number;
    pthread_mutex_lock(&lock);
    entry *there = find(one->handle);
    if (there && one->is_shared)
        number = there->number;
    /* Another thread may have been given the handle meanwhile. */
    if (there && there->number == number && one->is_kept)
        there->number = 0;
    else if (there && there->number == number)
        is_over(there);
    pthread_mutex_unlock(&lock);
    element(s, "For", "aid", number);
    if (one->is_wild && status) {
        peer_facts(s, "fromRank", status->MPI_SOURCE);
        tag_facts(s, "fromTag", status->MPI_TAG);
    }
    element_end(s);
}

void waits_end(waits *w)
{
    if (w->list != w->few)
        free(w->list);
    free(w->statuses);
}

void peer_facts(state *s, const char *key, int rank)
{
    if (rank == MPI_PROC_NULL)
        words(s, key, "null");
    else
        number(s, key, rank == MPI_ANY_SOURCE ? -1 : rank);
}

void tag_facts(state *s, const char *key, int tag)
{
    number(s, key, tag == MPI_ANY_TAG ? -1 : tag);
}
