/* Traces of MPI programs: what the files of this library know of each other.
 *
 * The library is loaded before the MPI library (and before libweft-mpiio) and exports MPI_*: each
 * call goes on to whoever comes next, and becomes a state in the trace of its thread. What the
 * states speak of (communicators, datatypes, files) stands once in a project file of the rank;
 * `weft trace mpi` makes one project of those. It never calls another rank, and nothing that the
 * program does waits for more than a write to a file.
 */
#ifndef WEFT_MPITRACE_H
#define WEFT_MPITRACE_H

#pragma GCC visibility push(default) /* of MPI_*; all else is hidden */
#include <mpi.h>
#pragma GCC visibility pop
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The trace of a thread. */
typedef struct lane lane;

/* A call that is under way. */
typedef struct state {
    lane *lane; /* NULL: it is not recorded */
    const char *name;
    int64_t begin, end;
    int is_open, holds_elements, error;
} state;

/* record.c */
void record_begin(void);
void record_end(void);
void record_flush(void);
void *next_of(const char *name); /* the function that would answer without this library */
void state_begin(state *s, const char *name);
void state_returned(state *s, int error);
void state_tag(state *s); /* the name and the times; the rest does it if need be */
void state_put(state *s);
void state_more(state *s); /* one more state of this call, which takes no time */
void state_drop(state *s);
void number(state *s, const char *key, int64_t value);
void words(state *s, const char *key, const char *value);
void element(state *s, const char *name, const char *key, int64_t value); /* left open for numbers */
void element_end(state *s);
void fact(const char *format, ...) __attribute__((format(printf, 1, 2))); /* a line of the rank's project */
char *escaped(char *to, size_t bytes, const char *text);
int64_t now(void);

/* about.c: what states speak of, by numbers */
void about_begin(void);
void comm_made(MPI_Comm comm);
void comm_facts(state *s, MPI_Comm comm);
int type_number(MPI_Datatype type); /* 0: none */
int64_t size_of(int64_t count, MPI_Datatype type);
void data_facts(state *s, int64_t count, MPI_Datatype type);
void file_opened(state *s, MPI_File file, MPI_Comm comm, const char *name, int amode, int64_t bytes);
void file_facts(state *s, MPI_File file);
int file_number(MPI_File file); /* -1: none */
void file_closed(int number);

/* requests.c: calls that go on beside the program */
typedef struct request_facts {
    const char *name; /* of the call that begins it */
    int64_t count;
    MPI_Datatype type;
    int peer, tag;
    MPI_Comm comm;
} request_facts;
uint32_t request_new(MPI_Request request, int is_wild);
void request_kept(MPI_Request request, const request_facts *facts);          /* persistent, not begun */
const request_facts *request_started(MPI_Request request, uint32_t *number); /* of a persistent one */
void request_freed(MPI_Request request);

typedef struct waited {
    uint64_t handle;
    uint32_t number;
    int is_wild, is_kept, is_shared;
} waited;
typedef struct waits {
    waited few[32];
    waited *list;
    MPI_Status *statuses; /* ours, where the program wants none and a receive does not say from whom */
    int count;
} waits;
void waits_begin(waits *w, int count, const MPI_Request *requests, int wants_statuses);
void waits_done(state *s, waits *w, int which, const MPI_Status *status);
void waits_end(waits *w);

void peer_facts(state *s, const char *key, int rank);
void tag_facts(state *s, const char *key, int tag);

/* A function of MPI: what is done before it, and what is told of it. */
#define CALL(NAME, PARAMETERS, ARGUMENTS, BEFORE, AFTER)                                                               \
    int MPI_##NAME PARAMETERS                                                                                          \
    {                                                                                                                  \
        static int(*next) PARAMETERS;                                                                                  \
        if (!next)                                                                                                     \
            next = (int(*) PARAMETERS)next_of("MPI_" #NAME);                                                           \
        state s;                                                                                                       \
        state_begin(&s, #NAME);                                                                                        \
        BEFORE;                                                                                                        \
        int error = next ARGUMENTS;                                                                                    \
        state_returned(&s, error);                                                                                     \
        AFTER;                                                                                                         \
        state_put(&s);                                                                                                 \
        return error;                                                                                                  \
    }

#endif
