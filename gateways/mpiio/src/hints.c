/* Hints: how collective calls are done. Who gives none gets what the environment says. */
#include "mpiio.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t BUFFER_DEFAULT = 8u << 20;
static const uint64_t BUFFER_MAX = 512u << 20;
static const char *const METHOD_NAMES[METHODS] = {"direct", "two_phase", "interleaved_two_phase", "double_buffered"};

static void take_method(hints *hints, const char *name)
{
    for (int method = 0; method < METHODS; method++)
        if (strcmp(name, METHOD_NAMES[method]) == 0)
            hints->method = (enum method)method;
}

static int number(const char *text, unsigned long long least, unsigned long long most, unsigned long long *value)
{
    char *end;
    *value = strtoull(text, &end, 10);
    return *text >= '0' && *text <= '9' && *end == '\0' && *value >= least && *value <= most;
}

/* A hint that is not understood is left alone, as MPI wants it. */
static void take_one(hints *hints, int ranks, const char *key, const char *value)
{
    unsigned long long is;
    if (strcmp(key, "weft_collective") == 0)
        take_method(hints, value);
    else if (strcmp(key, "cb_buffer_size") == 0 && number(value, 1, BUFFER_MAX, &is))
        hints->buffer = is;
    else if (strcmp(key, "cb_nodes") == 0 && number(value, 1, INT_MAX, &is))
        hints->nodes = is < (unsigned long long)ranks ? (int)is : ranks;
}

static int take_all(hints *hints, int ranks, MPI_Info info)
{
    int keys = 0;
    int error = info == MPI_INFO_NULL ? MPI_SUCCESS : PMPI_Info_get_nkeys(info, &keys);
    for (int i = 0; i < keys && error == MPI_SUCCESS; i++) {
        char key[MPI_MAX_INFO_KEY + 1], value[MPI_MAX_INFO_VAL + 1];
        int is_there = 0;
        error = PMPI_Info_get_nthkey(info, i, key);
        if (error == MPI_SUCCESS)
            error = PMPI_Info_get(info, key, MPI_MAX_INFO_VAL, value, &is_there);
        if (error == MPI_SUCCESS && is_there)
            take_one(hints, ranks, key, value);
    }
    return error;
}

/* Ranks that do a collective call in different ways would wait for each other for ever. */
int hints_take(file *f, MPI_Info info)
{
    hints taken = f->hints;
    int64_t error = take_all(&taken, f->ranks, info);
    int64_t mine[] = {error, taken.method, -(int64_t)taken.method, (int64_t)taken.buffer, -(int64_t)taken.buffer, taken.nodes, -taken.nodes};
    int64_t all[sizeof mine / sizeof *mine];
    int told = PMPI_Allreduce(mine, all, sizeof mine / sizeof *mine, MPI_INT64_T, MPI_MAX, f->comm);
    if (told != MPI_SUCCESS || all[0] != MPI_SUCCESS)
        return told != MPI_SUCCESS ? told : (int)all[0];
    if (all[1] != -all[2] || all[3] != -all[4] || all[5] != -all[6])
        return MPI_ERR_NOT_SAME;
    f->hints = taken;
    return MPI_SUCCESS;
}

int hints_begin(file *f, MPI_Info info)
{
    const char *method = getenv("WEFT_MPIIO_COLLECTIVE");
    f->hints = (hints){.method = INTERLEAVED_TWO_PHASE, .buffer = BUFFER_DEFAULT, .nodes = f->ranks};
    if (method)
        take_method(&f->hints, method);
    return hints_take(f, info);
}

static int show(MPI_Info info, const char *key, unsigned long long value)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", value);
    return PMPI_Info_set(info, key, text);
}

/* The hints in use, with the layout of the file. */
int hints_show(file *f, MPI_Info *info)
{
    weft_attr attr;
    int error = PMPI_Info_create(info);
    if (error != MPI_SUCCESS)
        return error;
    error = PMPI_Info_set(*info, "weft_collective", METHOD_NAMES[f->hints.method]);
    if (error == MPI_SUCCESS)
        error = show(*info, "cb_buffer_size", f->hints.buffer);
    if (error == MPI_SUCCESS)
        error = show(*info, "cb_nodes", (unsigned long long)f->hints.nodes);
    if (error == MPI_SUCCESS && weft_fstat(f->data, &attr) == 0) {
        error = show(*info, "striping_unit", attr.stripe_bytes);
        if (error == MPI_SUCCESS)
            error = show(*info, "striping_factor", attr.stripe_width);
    }
    if (error != MPI_SUCCESS)
        PMPI_Info_free(info);
    return error;
}
