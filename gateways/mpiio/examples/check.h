/* What the examples do when something is not as it should be. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(is_true)                                                                     \
    do {                                                                                   \
        if (!(is_true)) {                                                                  \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #is_true);          \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                  \
        }                                                                                  \
    } while (0)

#define DO(call) CHECK((call) == MPI_SUCCESS)

/* A call that must fail with an error of this class. */
#define FAILS(call, expected)                                                              \
    do {                                                                                   \
        int class_of_error;                                                                \
        MPI_Error_class((call), &class_of_error);                                          \
        CHECK(class_of_error == (expected));                                               \
    } while (0)

static int rank, ranks;

static inline void begin(int *argc, char ***argv)
{
    DO(MPI_Init(argc, argv));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
}

static inline void end(const char *what)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("%s, %d ranks: all is well\n", what, ranks);
    MPI_Finalize();
}

#endif
