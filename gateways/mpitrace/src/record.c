/* The files of a rank: a trace for each thread, a buffer before each, and the rank's project. */
#define _GNU_SOURCE
#include "mpitrace.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (256u << 10)
#define STATE_MOST (64u << 10) /* of one state */
#define LANES_MOST 256
#define LIMIT ((uint64_t)1 << 30)

struct lane {
    int fd, depth, number;
    size_t used, state_at; /* bytes in the buffer; where the state that is written began */
    uint64_t written, states, lost;
    char *buffer;
};

static struct {
    char folder[PATH_MAX];
    char stem[512]; /* of the files of this rank: folder, host, rank */
    FILE *facts;
    int is_on, rank;
    pid_t process;
    int64_t begin;
    uint64_t limit;
    lane *lanes[LANES_MOST];
    int count;
    uint64_t without_lane;
    pthread_mutex_t lock;
} own = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread lane *mine;
static __thread int has_none;

void *next_of(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) {
        fprintf(stderr, "weft trace mpi: no library has %s\n", name);
        abort();
    }
    return found;
}

int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* All of it or nothing: a file that ends in the middle of a state could not be read. */
static int put_all(int fd, const char *data, size_t bytes, uint64_t at)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t put = pwrite(fd, data + done, bytes - done, (off_t)(at + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0) {
            (void)!ftruncate(fd, (off_t)at);
            return 0;
        }
        done += (size_t)put;
    }
    return 1;
}

static void lane_flush(lane *l)
{
    if (l->used == 0)
        return;
    if (l->written + l->used <= own.limit && put_all(l->fd, l->buffer, l->used, l->written))
        l->written += l->used;
    else
        l->lost += l->states;
    l->used = 0;
    l->states = 0;
}

static void put(lane *l, const char *text, size_t bytes)
{
    if (l->used + bytes <= BUFFER) {
        memcpy(l->buffer + l->used, text, bytes);
        l->used += bytes;
    }
}

static void put_text(lane *l, const char *text)
{
    put(l, text, strlen(text));
}

static void put_number(lane *l, int64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do
        *--at = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        *--at = '-';
    put(l, at, (size_t)(digits + sizeof digits - at));
}

static void put_time(lane *l, int64_t nanoseconds)
{
    char fraction[10] = ".";
    int64_t rest = nanoseconds % 1000000000;
    for (int digit = 9; digit > 0; digit--, rest /= 10)
        fraction[digit] = (char)('0' + rest % 10);
    put_number(l, nanoseconds / 1000000000);
    put(l, fraction, sizeof fraction);
}

static lane *lane_new(void)
{
    pthread_mutex_lock(&own.lock);
    lane *l = NULL;
    char path[sizeof own.folder + sizeof own.stem + 32];
    if (own.is_on && own.count < LANES_MOST && (l = calloc(1, sizeof *l)) && (l->buffer = malloc(BUFFER))) {
        l->number = own.count;
        snprintf(path, sizeof path, "%s_%d.trc", own.stem, l->number);
        l->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (l->fd >= 0) {
            own.lanes[own.count++] = l;
            struct timespec real;
            clock_gettime(CLOCK_REALTIME, &real);
            int64_t adjustment = real.tv_sec * INT64_C(1000000000) + real.tv_nsec - (now() - own.begin);
            put_text(l, "<Program timeAdjustment=\"");
            put_time(l, adjustment);
            put_text(l, "\">\n");
        } else {
            fprintf(stderr, "weft trace mpi: rank %d: cannot create %s: %s\n", own.rank, path, strerror(errno));
            free(l->buffer);
            free(l);
            l = NULL;
        }
    }
    pthread_mutex_unlock(&own.lock);
    return l;
}

void state_begin(state *s, const char *name)
{
    s->lane = NULL;
    if (__builtin_expect(!own.is_on, 0))
        return;
    if (__builtin_expect(!mine, 0)) {
        if (!has_none)
            mine = lane_new();
        if (!mine) {
            has_none = 1;
            __atomic_fetch_add(&own.without_lane, 1, __ATOMIC_RELAXED);
            return;
        }
    }
    if (mine->depth++ == 0)
        s->lane = mine;
    s->name = name;
    s->is_open = s->holds_elements = s->error = 0;
    s->begin = now();
}

void state_returned(state *s, int error)
{
    if (mine && mine->depth > 0 && !s->lane && own.is_on)
        mine->depth--;
    if (!s->lane)
        return;
    s->end = now();
    s->error = error;
}

void state_tag(state *s)
{
    lane *l = s->lane;
    s->is_open = 1;
    if (l->used + STATE_MOST > BUFFER) {
        int64_t begin = now();
        lane_flush(l);
        /* What recording costs the program is told as well. */
        put_text(l, "<Trace_write time=\"");
        put_time(l, s->end - own.begin);
        put_text(l, "\" end=\"");
        put_time(l, s->end - own.begin + (now() - begin));
        put_text(l, "\"/>\n");
    }
    l->state_at = l->used;
    put_text(l, "<");
    put_text(l, s->name);
    put_text(l, " time=\"");
    put_time(l, s->begin - own.begin);
    put_text(l, "\" end=\"");
    put_time(l, s->end - own.begin);
    put_text(l, "\"");
    if (s->error != MPI_SUCCESS)
        number(s, "error", s->error);
}

static lane *opened(state *s)
{
    if (s->lane && !s->is_open)
        state_tag(s);
    return s->lane;
}

/* Begins an attribute; NULL: nothing is recorded. */
static lane *attribute(state *s, const char *key)
{
    lane *l = opened(s);
    if (l) {
        put_text(l, " ");
        put_text(l, key);
        put_text(l, "=\"");
    }
    return l;
}

void number(state *s, const char *key, int64_t value)
{
    lane *l = attribute(s, key);
    if (!l)
        return;
    put_number(l, value);
    put_text(l, "\"");
}

/* Bytes of the letter of UTF-8 there; 0: it is none. */
static size_t letter(const unsigned char *text)
{
    size_t bytes = *text < 0x80 ? 1 : *text >= 0xc2 && *text < 0xe0 ? 2 : *text >= 0xe0 && *text < 0xf0 ? 3 : *text >= 0xf0 && *text < 0xf5 ? 4 : 0;
    for (size_t at = 1; at < bytes; at++)
        if ((text[at] & 0xc0) != 0x80)
            return 0;
    if ((*text == 0xe0 && text[1] < 0xa0) || (*text == 0xed && text[1] >= 0xa0) || (*text == 0xf0 && text[1] < 0x90) ||
        (*text == 0xf4 && text[1] >= 0x90))
        return 0;
    return bytes;
}

char *escaped(char *to, size_t bytes, const char *text)
{
    char *at = to;
    while (*text && (size_t)(at - to) + 8 < bytes) {
        const char *name = *text == '&' ? "&amp;" : *text == '<' ? "&lt;" : *text == '>' ? "&gt;" : *text == '"' ? "&quot;" : NULL;
        size_t length = letter((const unsigned char *)text);
        if (name) {
            at = stpcpy(at, name);
        } else if (length == 0 || (unsigned char)*text < 0x20 || *text == 0x7f) {
            *at++ = '?';
            length = 1;
        } else {
            at = mempcpy(at, text, length);
        }
        text += length;
    }
    *at = 0;
    return to;
}

void words(state *s, const char *key, const char *value)
{
    char text[PATH_MAX + 64];
    lane *l = attribute(s, key);
    if (!l)
        return;
    put_text(l, escaped(text, sizeof text, value));
    put_text(l, "\"");
}

void element(state *s, const char *name, const char *key, int64_t value)
{
    lane *l = opened(s);
    if (!l)
        return;
    if (l->used - l->state_at + 256 > STATE_MOST) {
        /* A list that is longer becomes two states, the second of which takes no time. */
        state_more(s);
        state_tag(s);
    }
    put_text(l, s->holds_elements ? "<" : "><");
    s->holds_elements = 1;
    put_text(l, name);
    number(s, key, value);
}

void element_end(state *s)
{
    if (s->lane)
        put_text(s->lane, "/>");
}

void state_put(state *s)
{
    lane *l = opened(s);
    if (!l)
        return;
    if (s->holds_elements) {
        put_text(l, "</");
        put_text(l, s->name);
        put_text(l, ">\n");
    } else {
        put_text(l, "/>\n");
    }
    l->states++;
    l->depth--;
    s->lane = NULL;
}

void state_more(state *s)
{
    lane *l = s->lane;
    state_put(s);
    l->depth++;
    s->lane = l;
    s->begin = s->end;
    s->is_open = s->holds_elements = 0;
}

void state_drop(state *s)
{
    s->lane->depth--;
    s->lane = NULL;
}

void fact(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    if (own.facts) {
        vfprintf(own.facts, format, list);
        if (format[strlen(format) - 1] == '\n')
            fflush(own.facts);
    }
    va_end(list);
}

void record_begin(void)
{
    const char *folder = getenv("WEFT_MPITRACE"), *limit = getenv("WEFT_MPITRACE_LIMIT");
    if (!folder || !*folder || own.is_on)
        return;
    char host[128] = "", program[256], text[512], path[sizeof own.stem + 32];
    int ranks;
    PMPI_Comm_rank(MPI_COMM_WORLD, &own.rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &ranks);
    gethostname(host, sizeof host - 1);
    for (char *at = host; *at; at++)
        if (*at == '/' || *at == '_' || (unsigned char)*at <= ' ' || (unsigned char)*at > '~')
            *at = '-';
    int length = snprintf(own.stem, sizeof own.stem, "%s/run_%s_%d", folder, host, own.rank);
    if (length < 0 || (size_t)length >= sizeof own.stem) {
        fprintf(stderr, "weft trace mpi: rank %d is not recorded: the path of the folder is too long\n", own.rank);
        return;
    }
    own.limit = limit && *limit ? strtoull(limit, NULL, 10) : LIMIT;
    snprintf(path, sizeof path, "%s/rank%d.part", folder, own.rank);
    int facts = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    own.facts = facts < 0 ? NULL : fdopen(facts, "w");
    if (!own.facts) {
        fprintf(stderr, "weft trace mpi: rank %d is not recorded: %s: %s\n", own.rank, path, strerror(errno));
        return;
    }
    snprintf(program, sizeof program, "%s", program_invocation_short_name);
    fact("<Application name=\"%s\" processCount=\"%d\">\n", escaped(text, sizeof text, program), ranks);
    fact("<Topology><Level type=\"Hostname\"><Level type=\"Rank\"><Level type=\"Thread\"/></Level></Level>");
    fact("<Node name=\"%s\"><Node name=\"%d\"/></Node></Topology>\n", host, own.rank);
    own.process = getpid();
    own.begin = now();
    about_begin();
    own.is_on = 1;
}

void record_flush(void)
{
    if (own.is_on && own.process == getpid())
        for (int at = 0; at < own.count; at++)
            lane_flush(own.lanes[at]);
}

void record_end(void)
{
    if (!own.is_on || own.process != getpid())
        return;
    own.is_on = 0;
    uint64_t lost = own.without_lane;
    for (int at = 0; at < own.count; at++) {
        lane *l = own.lanes[at];
        lane_flush(l);
        lost += l->lost;
        if (!put_all(l->fd, "</Program>\n", 11, l->written))
            lost++;
        close(l->fd);
    }
    if (lost > 0) {
        fact("<Lost states=\"%llu\"/>\n", (unsigned long long)lost);
        fprintf(stderr, "weft trace mpi: rank %d: %llu calls were not recorded\n", own.rank, (unsigned long long)lost);
    }
    fact("</Application>\n");
    fclose(own.facts);
    own.facts = NULL;
}

/* A program that ends without MPI_Finalize. */
__attribute__((destructor)) static void process_ends(void)
{
    record_flush();
}
