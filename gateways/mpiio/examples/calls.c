/* The calls of MPI-IO one after the other: pointers, shared pointers, requests, split calls, atomic
 * mode, sizes, errors, hints.
 *
 * Usage: mpiexec -n 4 calls FILE OTHER, where OTHER is no file on Weft
 */
#include "check.h"

static int count_of(MPI_Status *status, MPI_Datatype type)
{
    int count;
    DO(MPI_Get_count(status, type, &count));
    return count;
}

static MPI_File fresh(const char *name)
{
    MPI_File file;
    DO(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    DO(MPI_File_set_size(file, 0));
    return file;
}

/* A view of integers in turns; own pointers count them. */
static void pointers(const char *name)
{
    MPI_File file = fresh(name);
    MPI_Datatype turns, inner, etype, filetype;
    MPI_Offset at, disp;
    MPI_Status status;
    char representation[MPI_MAX_DATAREP_STRING];
    int numbers[10], found[12];
    DO(MPI_Type_contiguous(1, MPI_INT, &inner));
    DO(MPI_Type_create_resized(inner, 0, (MPI_Aint)sizeof(int) * ranks, &turns));
    DO(MPI_Type_commit(&turns));
    DO(MPI_File_set_view(file, 8 + (MPI_Offset)sizeof(int) * rank, MPI_INT, turns, "native", MPI_INFO_NULL));
    for (int i = 0; i < 10; i++)
        numbers[i] = 100 * i + rank;
    DO(MPI_File_write(file, numbers, 4, MPI_INT, &status));
    CHECK(count_of(&status, MPI_INT) == 4);
    DO(MPI_File_get_position(file, &at));
    CHECK(at == 4);
    DO(MPI_File_write_at(file, 7, numbers + 7, 3, MPI_INT, &status));
    DO(MPI_File_write_all(file, numbers + 4, 3, MPI_INT, &status));
    DO(MPI_File_get_byte_offset(file, 5, &disp));
    CHECK(disp == 8 + (MPI_Offset)sizeof(int) * (5 * ranks + rank));
    MPI_Barrier(MPI_COMM_WORLD);
    DO(MPI_File_seek(file, -9, MPI_SEEK_END));
    DO(MPI_File_read(file, found, 12, MPI_INT, &status));
    CHECK(count_of(&status, MPI_INT) == 9 && memcmp(found, numbers + 1, 9 * sizeof(int)) == 0);
    DO(MPI_File_seek(file, 2, MPI_SEEK_SET));
    DO(MPI_File_seek(file, 1, MPI_SEEK_CUR));
    DO(MPI_File_read_all(file, found, 2, MPI_INT, &status));
    CHECK(found[0] == 300 + rank && found[1] == 400 + rank);
    FAILS(MPI_File_seek(file, -20, MPI_SEEK_CUR), MPI_ERR_ARG);
    DO(MPI_File_get_view(file, &disp, &etype, &filetype, representation));
    CHECK(disp == 8 + (MPI_Offset)sizeof(int) * rank && etype == MPI_INT && strcmp(representation, "native") == 0);
    MPI_Type_free(&filetype);
    MPI_Type_free(&turns);
    MPI_Type_free(&inner);
    FAILS(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "external32", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
    FAILS(MPI_File_set_view(file, -1, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), MPI_ERR_ARG);
    DO(MPI_File_close(&file));
    CHECK(file == MPI_FILE_NULL);
}

/* Every record is written once, and all of them fill the file. */
static void shared(const char *name)
{
    enum { EACH = 20 };
    MPI_File file = fresh(name);
    MPI_Offset at;
    MPI_Status status;
    int total = EACH * ranks, record[2];
    int *all = calloc((size_t)total, sizeof record), *seen = calloc((size_t)total, sizeof *seen);
    DO(MPI_File_set_view(file, 16, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int i = 0; i < EACH; i++) {
        record[0] = record[1] = rank * EACH + i;
        DO(MPI_File_write_shared(file, record, 2, MPI_INT, &status));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    DO(MPI_File_get_position_shared(file, &at));
    CHECK(at == 2 * total);
    DO(MPI_File_read_at(file, 0, all, 2 * total, MPI_INT, &status));
    for (int i = 0; i < total; i++) {
        CHECK(all[2 * i] == all[2 * i + 1] && all[2 * i] >= 0 && all[2 * i] < total);
        CHECK(!seen[all[2 * i]]++);
    }
    /* In the order of ranks, each as much as it likes. */
    DO(MPI_File_seek_shared(file, 3, MPI_SEEK_SET));
    for (int i = 0; i < ranks; i++)
        all[i] = 1000 + rank;
    DO(MPI_File_write_ordered(file, all, rank + 1, MPI_INT, &status));
    DO(MPI_File_seek_shared(file, -ranks * (ranks + 1) / 2, MPI_SEEK_CUR));
    DO(MPI_File_read_ordered_begin(file, all, rank + 1, MPI_INT));
    DO(MPI_File_read_ordered_end(file, all, &status));
    CHECK(count_of(&status, MPI_INT) == rank + 1);
    for (int i = 0; i <= rank; i++)
        CHECK(all[i] == 1000 + rank);
    DO(MPI_File_get_position_shared(file, &at));
    CHECK(at == 3 + ranks * (ranks + 1) / 2);
    free(seen);
    free(all);
    DO(MPI_File_close(&file));
}

/* Requests of files and of messages are waited for together; begin and end belong together. */
static void requests(const char *name)
{
    MPI_File file = fresh(name);
    MPI_Request wanted[3];
    MPI_Status statuses[3];
    int mine[64], from, next[64];
    for (int i = 0; i < 64; i++)
        mine[i] = rank * 64 + i;
    DO(MPI_File_iwrite_at(file, rank * (MPI_Offset)sizeof mine, mine, 64, MPI_INT, &wanted[0]));
    DO(MPI_Irecv(&from, 1, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD, &wanted[1]));
    DO(MPI_Isend(&rank, 1, MPI_INT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, &wanted[2]));
    DO(MPI_Waitall(3, wanted, statuses));
    CHECK(count_of(&statuses[0], MPI_INT) == 64 && from == (rank + 1) % ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    DO(MPI_File_read_at_all_begin(file, from * (MPI_Offset)sizeof mine, next, 64, MPI_INT));
    FAILS(MPI_File_read_at_all_begin(file, 0, next, 64, MPI_INT), MPI_ERR_OTHER);
    FAILS(MPI_File_write_all_end(file, next, statuses), MPI_ERR_OTHER);
    DO(MPI_File_read_at_all_end(file, next, statuses));
    CHECK(count_of(statuses, MPI_INT) == 64 && next[5] == from * 64 + 5);
    /* A rank may come to a call of all of them late. */
    if (rank == 0)
        DO(MPI_Recv(&from, 1, MPI_INT, ranks - 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    DO(MPI_File_seek(file, rank * (MPI_Offset)sizeof mine, MPI_SEEK_SET));
    DO(MPI_File_iread_all(file, next, 64, MPI_INT, &wanted[0]));
    DO(MPI_Wait(&wanted[0], statuses));
    CHECK(memcmp(next, mine, sizeof mine) == 0);
    if (rank == ranks - 1)
        DO(MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD));
    DO(MPI_File_close(&file));
}

/* In atomic mode nobody sees a part of a write, though it lies on several servers. */
static void atomic(const char *name)
{
    enum { BYTES = 300000, TIMES = 6 };
    MPI_File file = fresh(name);
    int flag;
    char *bytes = malloc(BYTES);
    DO(MPI_File_set_atomicity(file, 1));
    DO(MPI_File_get_atomicity(file, &flag));
    CHECK(flag);
    memset(bytes, 'a' + rank, BYTES);
    DO(MPI_File_write_at(file, 0, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
    for (int i = 0; i < TIMES; i++) {
        if (rank % 2) {
            memset(bytes, 'A' + rank * TIMES + i, BYTES);
            DO(MPI_File_write_at(file, 0, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
        } else {
            DO(MPI_File_read_at(file, 0, bytes, BYTES, MPI_BYTE, MPI_STATUS_IGNORE));
            for (int at = 1; at < BYTES; at++)
                CHECK(bytes[at] == bytes[0]);
        }
    }
    free(bytes);
    DO(MPI_File_close(&file));
}

static int handled;

static void handler(MPI_File *file, int *error, ...)
{
    (void)file, (void)error;
    handled++;
}

static void errors(const char *name)
{
    MPI_File file = fresh(name), other;
    MPI_Errhandler own;
    MPI_Offset size;
    MPI_Info info;
    char value[64];
    int amode, is_there;
    FAILS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_EXCL | MPI_MODE_RDWR, MPI_INFO_NULL, &other), MPI_ERR_FILE_EXISTS);
    FAILS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDONLY, MPI_INFO_NULL, &other), MPI_ERR_AMODE);
    FAILS(MPI_File_open(MPI_COMM_WORLD, name, rank ? MPI_MODE_RDONLY : MPI_MODE_RDWR, MPI_INFO_NULL, &other), ranks > 1 ? MPI_ERR_NOT_SAME : MPI_SUCCESS);
    DO(MPI_File_preallocate(file, 1000));
    DO(MPI_File_get_size(file, &size));
    CHECK(size == 1000);
    DO(MPI_File_set_size(file, 77));
    DO(MPI_File_sync(file));
    DO(MPI_File_get_size(file, &size));
    CHECK(size == 77);
    DO(MPI_File_get_info(file, &info));
    DO(MPI_Info_get(info, "weft_collective", sizeof value - 1, value, &is_there));
    CHECK(is_there && strcmp(value, "interleaved_two_phase") == 0);
    MPI_Info_free(&info);
    DO(MPI_File_create_errhandler(handler, &own));
    DO(MPI_File_set_errhandler(file, own));
    FAILS(MPI_File_read_at(file, -1, value, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_ARG);
    CHECK(handled == 1);
    /* All hear of the mistake of one. */
    CHECK(MPI_File_write_at_all(file, rank ? 0 : -1, value, 1, MPI_BYTE, MPI_STATUS_IGNORE) != MPI_SUCCESS && handled == 2);
    /* ... also where each of them writes by itself, in the order of ranks: the last one beyond what a file may have. */
    MPI_Offset place = rank == ranks - 1 ? INT64_MAX - 1000 : 10 * rank;
    FAILS(MPI_File_write_at_all(file, place, value, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_IO);
    FAILS(MPI_File_write_at_all(file, 0, value, 1, MPI_DATATYPE_NULL, MPI_STATUS_IGNORE), MPI_ERR_TYPE);
    FAILS(MPI_File_set_view(file, 0, MPI_BYTE, MPI_DATATYPE_NULL, "native", MPI_INFO_NULL), MPI_ERR_TYPE);
    MPI_Errhandler_free(&own);
    DO(MPI_File_close(&file));
    DO(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file));
    DO(MPI_File_get_amode(file, &amode));
    CHECK(amode == (MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE));
    FAILS(MPI_File_write(file, value, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
    DO(MPI_File_close(&file));
    FAILS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    if (rank == 0)
        FAILS(MPI_File_delete(name, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
}

/* Ranks that want to work together in different ways are told so, and nothing is made or changed. */
static void hints(const char *name)
{
    MPI_File file = fresh(name);
    MPI_Info info;
    char value[64];
    int is_there;
    DO(MPI_Info_create(&info));
    DO(MPI_Info_set(info, "cb_nodes", rank ? "1" : "2"));
    FAILS(MPI_File_set_info(file, info), MPI_ERR_NOT_SAME);
    FAILS(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", info), MPI_ERR_NOT_SAME);
    DO(MPI_File_close(&file));
    if (rank == 0)
        DO(MPI_File_delete(name, MPI_INFO_NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    FAILS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file), MPI_ERR_NOT_SAME);
    FAILS(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    DO(MPI_Info_set(info, "cb_nodes", "2"));
    DO(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    MPI_Info_free(&info);
    DO(MPI_File_get_info(file, &info));
    DO(MPI_Info_get(info, "cb_nodes", sizeof value - 1, value, &is_there));
    CHECK(is_there && strcmp(value, "2") == 0);
    MPI_Info_free(&info);
    DO(MPI_File_close(&file));
}

/* A few bytes very far from each other: nobody goes through what lies between them. */
static void far(const char *name)
{
    MPI_File file = fresh(name);
    MPI_Status status;
    int found, place = ranks - 1 - rank;
    DO(MPI_File_write_at_all(file, (MPI_Offset)place << 45, &place, 1, MPI_INT, MPI_STATUS_IGNORE));
    DO(MPI_File_read_at_all(file, (MPI_Offset)rank << 45, &found, 1, MPI_INT, &status));
    CHECK(found == rank && count_of(&status, MPI_INT) == 1);
    DO(MPI_File_close(&file));
}

/* Files elsewhere are the business of the MPI library, at the same time. */
static void elsewhere(const char *name, const char *other)
{
    MPI_File here = fresh(name), there = fresh(other);
    int numbers[2] = {rank, rank + 1}, found[2];
    DO(MPI_File_write_at_all(there, rank * (MPI_Offset)sizeof numbers, numbers, 2, MPI_INT, MPI_STATUS_IGNORE));
    DO(MPI_File_write_at_all(here, rank * (MPI_Offset)sizeof numbers, numbers, 2, MPI_INT, MPI_STATUS_IGNORE));
    DO(MPI_File_read_at(there, rank * (MPI_Offset)sizeof numbers, found, 2, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(memcmp(numbers, found, sizeof numbers) == 0);
    DO(MPI_File_close(&there));
    DO(MPI_File_close(&here));
    /* Pointers of a file that is appended to are at its end. */
    DO(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_WRONLY | MPI_MODE_APPEND, MPI_INFO_NULL, &here));
    MPI_Offset at;
    DO(MPI_File_get_position(here, &at));
    CHECK(at == ranks * (MPI_Offset)sizeof numbers);
    DO(MPI_File_write_ordered(here, numbers, 1, MPI_INT, MPI_STATUS_IGNORE));
    DO(MPI_File_close(&here));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    CHECK(argc == 3);
    pointers(argv[1]);
    shared(argv[1]);
    requests(argv[1]);
    atomic(argv[1]);
    errors(argv[1]);
    hints(argv[1]);
    far(argv[1]);
    elsewhere(argv[1], argv[2]);
    end("calls");
    return 0;
}
