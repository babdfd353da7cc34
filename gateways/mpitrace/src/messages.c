/* Messages between two ranks, and waits for what goes on beside the program. */
#include "mpitrace.h"

static void sent(state *s, int64_t count, MPI_Datatype type, int to, int tag, MPI_Comm comm)
{
    if (!s->lane)
        return;
    data_facts(s, count, type);
    peer_facts(s, "toRank", to);
    number(s, "toTag", tag);
    comm_facts(s, comm);
}

static void begun(state *s, MPI_Request *request, int is_wild)
{
    if (s->lane && s->error == MPI_SUCCESS)
        number(s, "aid", request_new(*request, is_wild));
}

/* What came, or what is awaited. */
static void taken(state *s, int64_t count, MPI_Datatype type, int from, int tag, MPI_Comm comm, const MPI_Status *status)
{
    if (!s->lane)
        return;
    MPI_Count bytes = -1;
    if (status && s->error == MPI_SUCCESS && from != MPI_PROC_NULL) {
        from = status->MPI_SOURCE;
        tag = status->MPI_TAG;
        PMPI_Get_elements_x(status, MPI_BYTE, &bytes);
    }
    number(s, "size", bytes >= 0 ? (int64_t)bytes : size_of(count, type));
    number(s, "count", count);
    number(s, "tid", type_number(type));
    peer_facts(s, "fromRank", from);
    tag_facts(s, "fromTag", tag);
    comm_facts(s, comm);
}

#define TO const void *buf, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm
#define SEND(NAME) CALL(NAME, (TO), (buf, count, type, to, tag, comm), , sent(&s, count, type, to, tag, comm))
SEND(Send)
SEND(Bsend)
SEND(Ssend)
SEND(Rsend)

#define ISEND(NAME)                                                                                                    \
    CALL(NAME, (TO, MPI_Request * request), (buf, count, type, to, tag, comm, request), , {                            \
        sent(&s, count, type, to, tag, comm);                                                                          \
        begun(&s, request, 0);                                                                                         \
    })
ISEND(Isend)
ISEND(Ibsend)
ISEND(Issend)
ISEND(Irsend)

CALL(Recv, (void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status *status),
     (buf, count, type, from, tag, comm, status == MPI_STATUS_IGNORE ? &own : status), MPI_Status own,
     taken(&s, count, type, from, tag, comm, status == MPI_STATUS_IGNORE ? &own : status))

CALL(Irecv, (void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request),
     (buf, count, type, from, tag, comm, request), , {
         taken(&s, count, type, from, tag, comm, NULL);
         begun(&s, request, from == MPI_ANY_SOURCE || tag == MPI_ANY_TAG);
     })

static void exchanged(state *s, int64_t count, MPI_Datatype type, int to, int to_tag, int from, int from_tag, MPI_Comm comm,
                      const MPI_Status *status)
{
    if (!s->lane)
        return;
    sent(s, count, type, to, to_tag, comm);
    int is_known = s->error == MPI_SUCCESS && from != MPI_PROC_NULL;
    peer_facts(s, "fromRank", is_known ? status->MPI_SOURCE : from);
    tag_facts(s, "fromTag", is_known ? status->MPI_TAG : from_tag);
}

CALL(Sendrecv,
     (const void *out, int count, MPI_Datatype type, int to, int to_tag, void *in, int in_count, MPI_Datatype in_type, int from, int from_tag,
      MPI_Comm comm, MPI_Status *status),
     (out, count, type, to, to_tag, in, in_count, in_type, from, from_tag, comm, status == MPI_STATUS_IGNORE ? &own : status), MPI_Status own,
     exchanged(&s, count, type, to, to_tag, from, from_tag, comm, status == MPI_STATUS_IGNORE ? &own : status))

CALL(Sendrecv_replace, (void *buf, int count, MPI_Datatype type, int to, int to_tag, int from, int from_tag, MPI_Comm comm, MPI_Status *status),
     (buf, count, type, to, to_tag, from, from_tag, comm, status == MPI_STATUS_IGNORE ? &own : status), MPI_Status own,
     exchanged(&s, count, type, to, to_tag, from, from_tag, comm, status == MPI_STATUS_IGNORE ? &own : status))

CALL(Probe, (int from, int tag, MPI_Comm comm, MPI_Status *status), (from, tag, comm, status), , {
    peer_facts(&s, "fromRank", from);
    tag_facts(&s, "fromTag", tag);
    comm_facts(&s, comm);
})

/* Persistent requests: told when they are started. */
static void kept(const state *s, const char *name, int64_t count, MPI_Datatype type, int peer, int tag, MPI_Comm comm, const MPI_Request *request)
{
    if (s->lane && s->error == MPI_SUCCESS)
        request_kept(*request, &(request_facts){name, count, type, peer, tag, comm});
}

#define SEND_INIT(NAME, BEGINS)                                                                                        \
    CALL(NAME, (TO, MPI_Request * request), (buf, count, type, to, tag, comm, request), ,                              \
         kept(&s, BEGINS, count, type, to, tag, comm, request))
SEND_INIT(Send_init, "Isend")
SEND_INIT(Bsend_init, "Ibsend")
SEND_INIT(Ssend_init, "Issend")
SEND_INIT(Rsend_init, "Irsend")
CALL(Recv_init, (void *buf, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Request *request),
     (buf, count, type, from, tag, comm, request), , kept(&s, "Irecv", count, type, from, tag, comm, request))

static void started(state *s, MPI_Request request)
{
    uint32_t aid;
    const request_facts *f = s->error == MPI_SUCCESS ? request_started(request, &aid) : NULL;
    if (!f)
        return;
    s->name = f->name;
    if (strcmp(f->name, "Irecv") == 0)
        taken(s, f->count, f->type, f->peer, f->tag, f->comm, NULL);
    else
        sent(s, f->count, f->type, f->peer, f->tag, f->comm);
    number(s, "aid", aid);
}

CALL(Start, (MPI_Request * request), (request), , if (s.lane) started(&s, *request))

/* Each of them is a state; the call's time is that of the first. */
CALL(Startall, (int count, MPI_Request requests[]), (count, requests), , {
    for (int at = 0; s.lane && at < count; at++) {
        if (at > 0)
            state_more(&s);
        started(&s, requests[at]);
    }
})

CALL(Request_free, (MPI_Request * request), (request), if (s.lane) request_freed(*request), )

#define ONE_STATUS (status != MPI_STATUS_IGNORE ? status : w.statuses ? w.statuses : MPI_STATUS_IGNORE)
#define ALL_STATUSES (statuses != MPI_STATUSES_IGNORE ? statuses : w.statuses ? w.statuses : MPI_STATUSES_IGNORE)
/* The statuses that may be read; NULL: there are none. */
#define READ(GIVEN, IGNORED) ((GIVEN) == (IGNORED) ? NULL : (GIVEN))
#define WAITS(COUNT, REQUESTS, WANTS)                                                                                  \
    waits w;                                                                                                           \
    waits_begin(&w, s.lane ? (COUNT) : 0, REQUESTS, WANTS)

/* Questions that are answered with no are not told: programs ask in circles. */
static void all_done(state *s, waits *w, const MPI_Status *statuses, int is_over)
{
    for (int at = 0; s->lane && is_over && at < w->count; at++)
        waits_done(s, w, at, statuses ? &statuses[at] : NULL);
    if (s->lane && !is_over)
        state_drop(s);
    waits_end(w);
}

CALL(Wait, (MPI_Request * request, MPI_Status *status), (request, ONE_STATUS), WAITS(1, request, status != MPI_STATUS_IGNORE),
     all_done(&s, &w, READ(ONE_STATUS, MPI_STATUS_IGNORE), 1))
CALL(Test, (MPI_Request * request, int *flag, MPI_Status *status), (request, flag, ONE_STATUS), WAITS(1, request, status != MPI_STATUS_IGNORE),
     all_done(&s, &w, READ(ONE_STATUS, MPI_STATUS_IGNORE), *flag))
CALL(Waitall, (int count, MPI_Request requests[], MPI_Status statuses[]), (count, requests, ALL_STATUSES),
     WAITS(count, requests, statuses != MPI_STATUSES_IGNORE), all_done(&s, &w, READ(ALL_STATUSES, MPI_STATUSES_IGNORE), 1))
CALL(Testall, (int count, MPI_Request requests[], int *flag, MPI_Status statuses[]), (count, requests, flag, ALL_STATUSES),
     WAITS(count, requests, statuses != MPI_STATUSES_IGNORE), all_done(&s, &w, READ(ALL_STATUSES, MPI_STATUSES_IGNORE), *flag))

static void one_done(state *s, waits *w, int which, const MPI_Status *status, int is_over)
{
    if (s->lane && is_over && which != MPI_UNDEFINED)
        waits_done(s, w, which, status);
    if (s->lane && !is_over)
        state_drop(s);
    waits_end(w);
}

CALL(Waitany, (int count, MPI_Request requests[], int *which, MPI_Status *status), (count, requests, which, ONE_STATUS),
     WAITS(count, requests, status != MPI_STATUS_IGNORE), one_done(&s, &w, *which, READ(ONE_STATUS, MPI_STATUS_IGNORE), 1))
CALL(Testany, (int count, MPI_Request requests[], int *which, int *flag, MPI_Status *status), (count, requests, which, flag, ONE_STATUS),
     WAITS(count, requests, status != MPI_STATUS_IGNORE), one_done(&s, &w, *which, READ(ONE_STATUS, MPI_STATUS_IGNORE), *flag))

static void some_done(state *s, waits *w, int count, const int *which, const MPI_Status *statuses, int asks)
{
    for (int at = 0; s->lane && count != MPI_UNDEFINED && at < count; at++)
        waits_done(s, w, which[at], statuses ? &statuses[at] : NULL);
    if (s->lane && asks && count == 0)
        state_drop(s);
    waits_end(w);
}

#define SOME(NAME, ASKS)                                                                                               \
    CALL(NAME, (int in, MPI_Request requests[], int *out, int which[], MPI_Status statuses[]), (in, requests, out, which, ALL_STATUSES), \
         WAITS(in, requests, statuses != MPI_STATUSES_IGNORE),                                                         \
         some_done(&s, &w, *out, which, READ(ALL_STATUSES, MPI_STATUSES_IGNORE), ASKS))
SOME(Waitsome, 0)
SOME(Testsome, 1)
