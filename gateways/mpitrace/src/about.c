/* What states speak of: communicators, datatypes and files, by numbers of this rank. */
#define _GNU_SOURCE
#include "mpitrace.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define TYPES_MOST 65536
#define PARTS_MOST 65536 /* of a datatype */
#define DEPTH_MOST 32

static int comm_key, type_key, comm_count, type_count, end_number;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct open_file {
    MPI_File handle;
    MPI_Comm comm;
    int number;
} open_file;
static open_file *files;
static size_t file_count, file_room;
static int files_ever;

void about_begin(void)
{
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &comm_key, NULL);
    PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type_key, NULL);
    comm_made(MPI_COMM_WORLD);
    comm_made(MPI_COMM_SELF);
}

/* The number of a communicator, from 0; -1: it joins two groups. */
static int comm_number(MPI_Comm comm)
{
    void *value;
    int is_there = 0, joins_groups = 0, members, cid = -1;
    PMPI_Comm_get_attr(comm, comm_key, &value, &is_there);
    if (is_there)
        return (int)(intptr_t)value - 1;
    pthread_mutex_lock(&lock);
    PMPI_Comm_get_attr(comm, comm_key, &value, &is_there);
    PMPI_Comm_test_inter(comm, &joins_groups);
    PMPI_Comm_size(comm, &members);
    int *ranks = is_there || joins_groups ? NULL : malloc(2 * (size_t)members * sizeof *ranks);
    if (is_there) {
        cid = (int)(intptr_t)value - 1;
    } else if (ranks) {
        MPI_Group group, world;
        PMPI_Comm_group(comm, &group);
        PMPI_Comm_group(MPI_COMM_WORLD, &world);
        for (int at = 0; at < members; at++)
            ranks[at] = at;
        PMPI_Group_translate_ranks(group, members, ranks, world, ranks + members);
        PMPI_Group_free(&group);
        PMPI_Group_free(&world);
        int is_of_world = 1;
        for (int at = 0; at < members; at++)
            is_of_world &= ranks[members + at] != MPI_UNDEFINED;
        if (is_of_world) {
            cid = comm_count++;
            fact("<CommunicatorList><Communicator name=\"%s\">", comm == MPI_COMM_WORLD ? "WORLD" : "");
            for (int at = 0; at < members; at++)
                fact("<Rank global=\"%d\" local=\"%d\" cid=\"%d\"/>", ranks[members + at], at, cid);
            fact("</Communicator></CommunicatorList>\n");
        }
        free(ranks);
    }
    if (!is_there)
        PMPI_Comm_set_attr(comm, comm_key, (void *)(intptr_t)(cid + 1));
    pthread_mutex_unlock(&lock);
    return cid;
}

void comm_made(MPI_Comm comm)
{
    if (comm != MPI_COMM_NULL)
        comm_number(comm);
}

void comm_facts(state *s, MPI_Comm comm)
{
    if (!s->lane || comm == MPI_COMM_NULL)
        return;
    int cid = comm == MPI_COMM_WORLD ? 0 : comm_number(comm);
    if (cid < 0)
        number(s, "beyond", 1);
    else
        number(s, "cid", cid);
}

static int describe(MPI_Datatype type, int depth);

static int known(MPI_Datatype type, int depth)
{
    void *value;
    int is_there = 0;
    PMPI_Type_get_attr(type, type_key, &value, &is_there);
    if (is_there)
        return (int)(intptr_t)value;
    int number = type_count < TYPES_MOST && depth < DEPTH_MOST ? describe(type, depth) : 0;
    PMPI_Type_set_attr(type, type_key, (void *)(intptr_t)number);
    return number;
}

/* The types whose sizes every reader knows by name; all else is so many bytes. */
static int is_common(const char *name)
{
    static const char *const common[] = {"MPI_CHAR", "MPI_BYTE", "MPI_SHORT", "MPI_INT", "MPI_FLOAT", "MPI_DOUBLE", "MPI_UNSIGNED", "MPI_PACKED", "MPI_INTEGER", "MPI_REAL", "MPI_DOUBLE_PRECISION"};
    for (size_t at = 0; at < sizeof common / sizeof *common; at++)
        if (strcmp(common[at], name) == 0)
            return 1;
    return 0;
}

static int begin_type(const char *combiner, const char *name)
{
    char text[MPI_MAX_OBJECT_NAME * 6 + 16];
    int number = ++type_count;
    fact("<%s id=\"%d\" name=\"%s\"", combiner, number, escaped(text, sizeof text, name));
    return number;
}

static void parts_of(int combiner, const int *i, const MPI_Aint *a, const MPI_Datatype *t, const int *numbers, const char *name, int *number)
{
    MPI_Aint low = 0, extent = 0;
    if (combiner != MPI_COMBINER_STRUCT)
        PMPI_Type_get_extent(t[0], &low, &extent);
    *number = begin_type("STRUCT", name);
    fact(" count=\"%d\">", combiner == MPI_COMBINER_RESIZED ? 2 : i[0]);
    if (combiner == MPI_COMBINER_RESIZED) {
        fact("<Type id=\"%d\" displacement=\"0\" blocklen=\"1\"/>", numbers[0]);
        fact("<Type id=\"%d\" displacement=\"%lld\" blocklen=\"1\"/>", numbers[1], (long long)(a[0] + a[1]));
    }
    for (int at = 0; combiner != MPI_COMBINER_RESIZED && at < i[0]; at++) {
        long long place = 0;
        int length = 1, of = numbers[0];
        switch (combiner) {
        case MPI_COMBINER_STRUCT: length = i[1 + at], place = a[at], of = numbers[at]; break;
        case MPI_COMBINER_HVECTOR: length = i[1], place = (long long)a[0] * at; break;
        case MPI_COMBINER_INDEXED: length = i[1 + at], place = (long long)i[1 + i[0] + at] * extent; break;
        case MPI_COMBINER_HINDEXED: length = i[1 + at], place = a[at]; break;
        case MPI_COMBINER_INDEXED_BLOCK: length = i[1], place = (long long)i[2 + at] * extent; break;
        case MPI_COMBINER_HINDEXED_BLOCK: length = i[1], place = a[at]; break;
        }
        fact("<Type id=\"%d\" displacement=\"%lld\" blocklen=\"%d\"/>", of, place, length);
    }
    fact("</STRUCT>");
}

static int describe(MPI_Datatype type, int depth)
{
    char name[MPI_MAX_OBJECT_NAME + 1] = "";
    int length, n_i, n_a, n_t, combiner, number = 0, size = 0;
    PMPI_Type_get_name(type, name, &length);
    PMPI_Type_get_envelope(type, &n_i, &n_a, &n_t, &combiner);
    PMPI_Type_size(type, &size);
    if (combiner == MPI_COMBINER_NAMED) {
        if (is_common(name)) {
            number = begin_type("NAMED", name);
            fact("/>");
            return number;
        }
        int of = known(MPI_BYTE, depth + 1);
        number = begin_type("CONTIGUOUS", name);
        fact(" count=\"%d\" oldType=\"%d\"/>", size, of);
        return number;
    }
    int *i = malloc((size_t)(n_i + 1) * sizeof *i), *numbers = calloc((size_t)n_t + 2, sizeof *numbers);
    MPI_Aint *a = malloc((size_t)(n_a + 1) * sizeof *a);
    MPI_Datatype *t = malloc((size_t)(n_t + 1) * sizeof *t);
    if (i && a && t && numbers && PMPI_Type_get_contents(type, n_i, n_a, n_t, i, a, t) == MPI_SUCCESS) {
        int has_all = 1;
        for (int at = 0; at < n_t; at++)
            has_all &= (numbers[at] = known(t[at], depth + 1)) != 0;
        if (combiner == MPI_COMBINER_RESIZED) {
            if (end_number == 0)
                end_number = begin_type("NAMED", "MPI_UB"), fact("/>");
            numbers[1] = end_number;
        }
        int count = combiner == MPI_COMBINER_DUP || combiner == MPI_COMBINER_RESIZED ? 1 : i[0];
        if (!has_all) {
            number = 0;
        } else if (combiner == MPI_COMBINER_DUP || combiner == MPI_COMBINER_CONTIGUOUS) {
            number = begin_type("CONTIGUOUS", name);
            fact(" count=\"%d\" oldType=\"%d\"/>", count, numbers[0]);
        } else if (combiner == MPI_COMBINER_VECTOR) {
            number = begin_type("VECTOR", name);
            fact(" count=\"%d\" blocklength=\"%d\" stride=\"%d\" oldType=\"%d\"/>", i[0], i[1], i[2], numbers[0]);
        } else if (combiner == MPI_COMBINER_SUBARRAY) {
            number = begin_type("SUBARRAY", name);
            fact(" ndims=\"%d\" order=\"%s\" oldType=\"%d\">", i[0], i[1 + 3 * i[0]] == MPI_ORDER_C ? "C" : "FORTRAN", numbers[0]);
            for (int d = 0; d < i[0]; d++)
                fact("<Dimension size=\"%d\" subsize=\"%d\" start=\"%d\"/>", i[1 + d], i[1 + i[0] + d], i[1 + 2 * i[0] + d]);
            fact("</SUBARRAY>");
        } else if (count <= PARTS_MOST && combiner != MPI_COMBINER_DARRAY) {
            parts_of(combiner, i, a, t, numbers, name, &number);
        } else {
            number = begin_type(combiner == MPI_COMBINER_DARRAY ? "DARRAY" : "LARGE", name);
            fact(" size=\"%d\"/>", size);
        }
        for (int at = 0; at < n_t; at++) {
            int inner_i, inner_a, inner_t, inner;
            PMPI_Type_get_envelope(t[at], &inner_i, &inner_a, &inner_t, &inner);
            if (inner != MPI_COMBINER_NAMED)
                PMPI_Type_free(&t[at]);
        }
    }
    free(i);
    free(a);
    free(t);
    free(numbers);
    return number;
}

int type_number(MPI_Datatype type)
{
    void *value;
    int is_there = 0, rank;
    if (type == MPI_DATATYPE_NULL)
        return 0;
    PMPI_Type_get_attr(type, type_key, &value, &is_there);
    if (is_there)
        return (int)(intptr_t)value;
    pthread_mutex_lock(&lock);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    fact("<Datatypes><Rank name=\"%d\" thread=\"0\">", rank);
    int number = known(type, 0);
    fact("</Rank></Datatypes>\n");
    pthread_mutex_unlock(&lock);
    return number;
}

int64_t size_of(int64_t count, MPI_Datatype type)
{
    MPI_Count size = 0;
    if (type != MPI_DATATYPE_NULL)
        PMPI_Type_size_x(type, &size);
    return size > 0 ? count * (int64_t)size : 0;
}

void data_facts(state *s, int64_t count, MPI_Datatype type)
{
    if (!s->lane)
        return;
    number(s, "size", size_of(count, type));
    number(s, "count", count);
    number(s, "tid", type_number(type));
}

static open_file *found(MPI_File file)
{
    for (size_t at = 0; at < file_count; at++)
        if (files[at].handle == file)
            return &files[at];
    return NULL;
}

void file_opened(state *s, MPI_File file, MPI_Comm comm, const char *name, int amode, int64_t bytes)
{
    char text[PATH_MAX + 64];
    if (!s->lane)
        return;
    pthread_mutex_lock(&lock);
    if (file_count == file_room) {
        size_t room = file_room ? 2 * file_room : 16;
        open_file *more = realloc(files, room * sizeof *more);
        if (more)
            files = more, file_room = room;
    }
    int fid = files_ever++;
    if (file_count < file_room)
        files[file_count++] = (open_file){file, comm, fid};
    if (bytes >= 0)
        fact("<FileList><File name=\"%s\"><InitialSize>%lld</InitialSize></File></FileList>\n", escaped(text, sizeof text, name), (long long)bytes);
    pthread_mutex_unlock(&lock);
    number(s, "fid", fid);
    words(s, "name", name);
    number(s, "amode", amode);
    comm_facts(s, comm);
}

int file_number(MPI_File file)
{
    pthread_mutex_lock(&lock);
    open_file *open = found(file);
    int number = open ? open->number : -1;
    pthread_mutex_unlock(&lock);
    return number;
}

void file_facts(state *s, MPI_File file)
{
    if (s->lane)
        number(s, "fid", file_number(file));
}

void file_closed(int number)
{
    pthread_mutex_lock(&lock);
    for (size_t at = 0; at < file_count; at++)
        if (files[at].number == number) {
            files[at] = files[--file_count];
            break;
        }
    pthread_mutex_unlock(&lock);
}
