/* A small program of each kind of call that is replayed: messages, requests, all ranks, a file. */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, ranks, sum = 0, from[2] = {0, 0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int left = (rank + ranks - 1) % ranks, right = (rank + 1) % ranks, above = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    int below = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    char *data = calloc(4, 65536);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    for (int round = 0; round < 3; round++) {
        MPI_Request requests[4];
        MPI_Isend(&rank, 1, MPI_INT, right, 7, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&rank, 1, MPI_INT, left, 8, MPI_COMM_WORLD, &requests[1]);
        MPI_Irecv(&from[0], 1, MPI_INT, MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &requests[2]);
        MPI_Irecv(&from[1], 1, MPI_INT, right, 8, MPI_COMM_WORLD, &requests[3]);
        MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
        if (from[0] != left || from[1] != right)
            MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Sendrecv(data, 1000, MPI_DOUBLE, above, 1, data + 65536, 1000, MPI_DOUBLE, below, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
    MPI_Bcast(data, 1000, MPI_BYTE, 0, MPI_COMM_WORLD);
    /* Blocks of 4 KiB of all ranks in turn, each rank's by a view. */
    MPI_Datatype blocks;
    MPI_Type_vector(8, 4096, 4096 * ranks, MPI_BYTE, &blocks);
    MPI_Type_commit(&blocks);
    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_view(file, 4096 * rank, MPI_BYTE, blocks, "native", MPI_INFO_NULL);
    MPI_File_write_all(file, data, 8 * 4096, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_read_at(file, 4096, data, 4096, MPI_BYTE, MPI_STATUS_IGNORE);
    MPI_File_close(&file);
    MPI_Type_free(&blocks);
    MPI_Comm_free(&half);
    usleep(50000);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    free(data);
    return 0;
}
