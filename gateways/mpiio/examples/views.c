/* Every constructor of datatypes as a view, by every collective method, compared byte by byte with
 * what the MPI library itself makes of the datatype in memory.
 *
 * Usage: mpiexec -n 4 views FILE
 */
#include "check.h"

#include <limits.h>

enum { IMAGE = 1 << 16, TILES = 3 };

static const char *const METHODS[] = {"direct", "two_phase", "interleaved_two_phase", "double_buffered"};

typedef struct shown {
    MPI_Datatype type;
    MPI_Offset disp;
} shown;

/* Data of ranks must not overlap: each constructor leaves room for those of all ranks. */
static shown make(int kind)
{
    int lengths[] = {1, 3, 2}, places[] = {0, 2 * ranks + 4, 8 * ranks + 9}, rising[] = {1, 5, 11};
    MPI_Aint bytes[] = {0, 4 * ranks + 20, 40 * ranks + 3};
    MPI_Datatype types[] = {MPI_INT, MPI_SHORT, MPI_CHAR}, inner, made;
    shown s = {MPI_DATATYPE_NULL, 16 + 20 * rank};
    int sizes[] = {4, 3 * ranks, 5}, part[] = {2, 3, 5}, starts[] = {1, 3 * rank, 0};
    int whole[] = {7, 6, 9}, kinds[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE, MPI_DISTRIBUTE_BLOCK};
    int arguments[] = {2, MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG}, grid[] = {ranks, 1, 1};
    switch (kind) {
    case 0:
        DO(MPI_Type_contiguous(5, MPI_INT, &inner));
        DO(MPI_Type_create_resized(inner, 0, 20 * ranks, &made));
        break;
    case 1:
        DO(MPI_Type_vector(7, 5, 5 * ranks, MPI_INT, &inner));
        DO(MPI_Type_create_resized(inner, 0, 7 * 20 * ranks, &made));
        break;
    case 2:
        DO(MPI_Type_create_hvector(3, 2, 20 * ranks + 1, MPI_DOUBLE, &inner));
        DO(MPI_Type_create_resized(inner, 0, 3 * (20 * ranks + 1) + 20 * ranks, &made));
        break;
    case 3:
        DO(MPI_Type_indexed(3, lengths, places, MPI_INT, &inner));
        s.disp = 16 + 4096 * rank;
        DO(MPI_Type_dup(inner, &made));
        break;
    case 4:
        DO(MPI_Type_create_hindexed(3, lengths, bytes, MPI_SHORT, &inner));
        DO(MPI_Type_create_resized(inner, 0, 64 * ranks, &made));
        s.disp = 6 * rank;
        break;
    case 5:
        DO(MPI_Type_create_indexed_block(3, 2, rising, MPI_DOUBLE_INT, &inner));
        DO(MPI_Type_dup(inner, &made));
        s.disp = 4096 * rank;
        break;
    case 6:
        DO(MPI_Type_create_hindexed_block(3, 1, bytes, MPI_SHORT_INT, &inner));
        DO(MPI_Type_dup(inner, &made));
        s.disp = 8192 * rank;
        break;
    case 7:
        DO(MPI_Type_create_struct(3, lengths, bytes, types, &inner));
        DO(MPI_Type_create_resized(inner, 0, 64 * ranks, &made));
        s.disp = 6 * rank;
        break;
    case 8:
        DO(MPI_Type_create_subarray(3, sizes, part, starts, MPI_ORDER_C, MPI_SHORT, &made));
        s.disp = 5;
        inner = MPI_DATATYPE_NULL;
        break;
    case 9:
        sizes[0] = 3 * ranks, sizes[1] = 4, part[0] = 3, part[1] = 2, starts[0] = 3 * rank, starts[1] = 1;
        DO(MPI_Type_create_subarray(3, sizes, part, starts, MPI_ORDER_FORTRAN, MPI_DOUBLE, &made));
        s.disp = 0;
        inner = MPI_DATATYPE_NULL;
        break;
    case 10:
    case 11:
        DO(MPI_Type_create_darray(ranks, rank, 3, whole, kinds, arguments, grid, kind == 10 ? MPI_ORDER_C : MPI_ORDER_FORTRAN, MPI_INT, &made));
        s.disp = 3;
        inner = MPI_DATATYPE_NULL;
        break;
    default:
        return s;
    }
    if (inner != MPI_DATATYPE_NULL)
        MPI_Type_free(&inner);
    DO(MPI_Type_commit(&made));
    s.type = made;
    return s;
}

/* The file as it should be: each rank puts its data into an image of it, by the MPI library. */
static void expect(const shown *s, const char *data, int bytes, char *image)
{
    int at = 0;
    memset(image, 0, IMAGE);
    DO(MPI_Unpack(data, bytes, &at, image + s->disp, TILES, s->type, MPI_COMM_WORLD));
    DO(MPI_Allreduce(MPI_IN_PLACE, image, IMAGE, MPI_CHAR, MPI_BOR, MPI_COMM_WORLD));
}

static void compare_file(MPI_File file, const char *image)
{
    static char found[IMAGE];
    MPI_Status status;
    int bytes;
    DO(MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    memset(found, 0, IMAGE);
    DO(MPI_File_read_at(file, 0, found, IMAGE, MPI_BYTE, &status));
    DO(MPI_Get_count(&status, MPI_BYTE, &bytes));
    CHECK(memcmp(found, image, IMAGE) == 0);
    while (bytes > 0 && found[bytes - 1] == 0)
        bytes--;
    MPI_Offset size;
    DO(MPI_File_get_size(file, &size));
    CHECK(size >= bytes && size < IMAGE);
}

/* One view, written and read; memory has gaps, too. */
static void one(const char *name, MPI_Info info, const shown *s)
{
    static char image[IMAGE];
    MPI_File file;
    MPI_Datatype gaps;
    MPI_Status status;
    int bytes, count, all;
    DO(MPI_Type_size(s->type, &bytes));
    bytes *= TILES;
    char *data = malloc((size_t)bytes + 1), *wide = calloc(1, 3 * (size_t)bytes + 1);
    for (int i = 0; i < bytes; i++)
        data[i] = (char)(1 + (i * 7 + rank * 31) % 127);
    for (int i = 0; i < bytes; i++)
        wide[3 * i] = data[i];
    DO(MPI_Type_vector(bytes, 1, 3, MPI_BYTE, &gaps));
    DO(MPI_Type_commit(&gaps));
    expect(s, data, bytes, image);

    DO(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, info, &file));
    for (int has_gaps = 0; has_gaps < 2; has_gaps++) {
        DO(MPI_File_set_size(file, 0));
        DO(MPI_File_set_view(file, s->disp, MPI_BYTE, s->type, "native", MPI_INFO_NULL));
        DO(MPI_File_write_all(file, has_gaps ? wide : data, has_gaps ? !!bytes : bytes, has_gaps ? gaps : MPI_BYTE, &status));
        DO(MPI_Get_count(&status, MPI_BYTE, &count));
        CHECK(count == bytes);
        compare_file(file, image);
        char *again = calloc(1, 3 * (size_t)bytes + 1);
        DO(MPI_File_set_view(file, s->disp, MPI_BYTE, s->type, "native", MPI_INFO_NULL));
        DO(MPI_File_read_all(file, again, has_gaps ? !!bytes : bytes, has_gaps ? gaps : MPI_BYTE, &status));
        DO(MPI_Get_count(&status, MPI_BYTE, &count));
        CHECK(count == bytes && memcmp(again, has_gaps ? wide : data, has_gaps ? 3 * (size_t)bytes : (size_t)bytes) == 0);
        free(again);
        if (has_gaps)
            continue;
        /* Beyond the end of the file there is nothing. */
        again = calloc(1, (size_t)bytes + 1);
        DO(MPI_File_read_at_all(file, IMAGE, again, bytes, MPI_BYTE, &status));
        DO(MPI_Get_count(&status, MPI_BYTE, &count));
        DO(MPI_Allreduce(&count, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        CHECK(all == 0);
        free(again);
    }
    DO(MPI_File_close(&file));
    MPI_Type_free(&gaps);
    free(wide);
    free(data);
}

/* However many blocks there are of nothing, nobody walks over them. */
static void nothing(const char *name)
{
    enum { DEPTH = 40 };
    MPI_Datatype type = MPI_INT;
    MPI_File file;
    MPI_Status status;
    int count;
    for (int i = 0; i < DEPTH; i++) {
        MPI_Datatype inner = type;
        DO(MPI_Type_vector(INT_MAX, 0, 1, inner, &type));
        if (inner != MPI_INT)
            MPI_Type_free(&inner);
    }
    DO(MPI_Type_commit(&type));
    DO(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    DO(MPI_File_write_at_all(file, 0, &count, 1, type, &status));
    DO(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == 0);
    DO(MPI_File_close(&file));
    MPI_Type_free(&type);
}

int main(int argc, char **argv)
{
    static const char *const BUFFERS[] = {"8388608", "15000", "4001"};
    begin(&argc, &argv);
    CHECK(argc == 2);
    for (size_t method = 0; method < sizeof METHODS / sizeof *METHODS; method++) {
        for (int kind = 0;; kind++) {
            shown s = make(kind);
            if (s.type == MPI_DATATYPE_NULL)
                break;
            /* Each by two of the four methods: ranks that share a core wait long for each other. */
            if ((kind + kind / 4 + (int)method) % 2) {
                MPI_Type_free(&s.type);
                continue;
            }
            MPI_Info info;
            char nodes[16];
            snprintf(nodes, sizeof nodes, "%d", 1 + (kind + (int)method) % ranks);
            DO(MPI_Info_create(&info));
            DO(MPI_Info_set(info, "weft_collective", METHODS[method]));
            DO(MPI_Info_set(info, "cb_buffer_size", BUFFERS[(kind + (int)method) % 3]));
            DO(MPI_Info_set(info, "cb_nodes", nodes));
            one(argv[1], info, &s);
            MPI_Info_free(&info);
            MPI_Type_free(&s.type);
        }
    }
    nothing(argv[1]);
    end("views");
    return 0;
}
