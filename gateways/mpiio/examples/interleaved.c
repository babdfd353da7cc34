/* The access pattern of the study of 2009 (section 6.2): ranks write and read one file block by
 * block in turns, each block by a call of its own or all blocks of a rank by one collective call.
 *
 * Usage: mpiexec -n RANKS interleaved FILE BLOCK_BYTES FILE_BYTES alone|direct|two_phase|
 *            interleaved_two_phase|double_buffered [BUFFER_BYTES [write|read|both]]
 * Prints a line of JSON: MiB/s of writing and of reading.
 */
#include "check.h"

static MPI_File open_with(const char *name, int amode, const char *method, const char *buffer)
{
    MPI_Info info;
    MPI_File file;
    DO(MPI_Info_create(&info));
    DO(MPI_Info_set(info, "weft_collective", method));
    DO(MPI_Info_set(info, "cb_buffer_size", buffer));
    DO(MPI_File_open(MPI_COMM_WORLD, name, amode, info, &file));
    MPI_Info_free(&info);
    return file;
}

/* Bytes of a block that tell its place in the file. */
static void fill(char *data, long block, long blocks)
{
    for (long i = 0; i < blocks; i++)
        for (long j = 0; j < block; j++)
            data[i * block + j] = (char)((i * ranks + rank) * 13 + j);
}

static void go(MPI_File file, char *data, long block, long blocks, int is_alone, int writes)
{
    int bytes = (int)(is_alone ? block : block * blocks);
    if (!is_alone) {
        DO(writes ? MPI_File_write_all(file, data, bytes, MPI_BYTE, MPI_STATUS_IGNORE)
                  : MPI_File_read_all(file, data, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
        return;
    }
    for (long i = 0; i < blocks; i++) {
        MPI_Offset at = (MPI_Offset)(i * ranks + rank) * block;
        DO(writes ? MPI_File_write_at(file, at, data + i * block, bytes, MPI_BYTE, MPI_STATUS_IGNORE)
                  : MPI_File_read_at(file, at, data + i * block, bytes, MPI_BYTE, MPI_STATUS_IGNORE));
    }
}

/* Seconds of the slowest rank, from when all begin. */
static double measure(MPI_File file, char *data, long block, long blocks, int is_alone, int writes)
{
    double seconds;
    MPI_Datatype one, turns;
    if (!is_alone) {
        DO(MPI_Type_contiguous((int)block, MPI_BYTE, &one));
        DO(MPI_Type_create_resized(one, 0, block * ranks, &turns));
        DO(MPI_Type_commit(&turns));
        DO(MPI_File_set_view(file, rank * (MPI_Offset)block, MPI_BYTE, turns, "native", MPI_INFO_NULL));
        MPI_Type_free(&turns);
        MPI_Type_free(&one);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double from = MPI_Wtime();
    go(file, data, block, blocks, is_alone, writes);
    double took = MPI_Wtime() - from;
    DO(MPI_Allreduce(&took, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD));
    return seconds;
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    CHECK(argc >= 5);
    long block = atol(argv[2]), blocks = atol(argv[3]) / block / ranks;
    int is_alone = strcmp(argv[4], "alone") == 0;
    const char *method = is_alone ? "direct" : argv[4], *buffer = argc > 5 ? argv[5] : "8388608";
    const char *what = argc > 6 ? argv[6] : "both";
    CHECK(block > 0 && blocks > 0 && block * blocks < (1L << 31));
    char *data = malloc((size_t)(block * blocks)), *again = malloc((size_t)(block * blocks));
    double mib = (double)(block * blocks * ranks) / (1 << 20), write_s = 0, read_s = 0;
    fill(data, block, blocks);
    if (strcmp(what, "read") != 0) {
        MPI_File file = open_with(argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, method, buffer);
        write_s = measure(file, data, block, blocks, is_alone, 1);
        DO(MPI_File_close(&file));
    }
    if (strcmp(what, "write") != 0) {
        MPI_File file = open_with(argv[1], MPI_MODE_RDONLY, method, buffer);
        read_s = measure(file, again, block, blocks, is_alone, 0);
        DO(MPI_File_close(&file));
        CHECK(memcmp(data, again, (size_t)(block * blocks)) == 0);
    }
    if (rank == 0)
        printf("{\"ranks\": %d, \"block_bytes\": %ld, \"file_bytes\": %ld, \"method\": \"%s\", "
               "\"write_mib_s\": %.1f, \"read_mib_s\": %.1f}\n",
               ranks, block, block * blocks * ranks, argv[4], write_s > 0 ? mib / write_s : 0, read_s > 0 ? mib / read_s : 0);
    MPI_Finalize();
    return 0;
}
