/* Calls of all ranks of a communicator, and what makes communicators. Sizes are what a rank gives;
 * of a root that gives others their parts, the part of one. */
#include "mpitrace.h"

static void together(state *s, int64_t count, MPI_Datatype type, int root, MPI_Comm comm)
{
    if (!s->lane)
        return;
    if (type != MPI_DATATYPE_NULL)
        data_facts(s, count, type);
    if (root >= 0)
        number(s, "rootRank", root);
    comm_facts(s, comm);
}

#define ALL -1 /* no root */
#define NONE MPI_DATATYPE_NULL

/* Where data is in its place already, the receiving side says how much it is. */
#define GIVEN(C, T) (out == MPI_IN_PLACE ? (C) : count), (out == MPI_IN_PLACE ? (T) : type)

static int64_t sum(const int counts[], MPI_Comm comm)
{
    int64_t all = 0;
    int ranks = 0;
    PMPI_Comm_size(comm, &ranks);
    for (int at = 0; at < ranks; at++)
        all += counts[at];
    return all;
}

static int mine(MPI_Comm comm)
{
    int rank = 0;
    PMPI_Comm_rank(comm, &rank);
    return rank;
}

CALL(Barrier, (MPI_Comm comm), (comm), , together(&s, 0, NONE, ALL, comm))
CALL(Bcast, (void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm), (buf, count, type, root, comm), ,
     together(&s, count, type, root, comm))
CALL(Reduce, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm), (out, in, count, type, op, root, comm), ,
     together(&s, count, type, root, comm))

#define REDUCTION(NAME)                                                                                                \
    CALL(NAME, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm), (out, in, count, type, op, comm), , \
         together(&s, count, type, ALL, comm))
REDUCTION(Allreduce)
REDUCTION(Scan)
REDUCTION(Exscan)
REDUCTION(Reduce_scatter_block)
CALL(Reduce_scatter, (const void *out, void *in, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm), (out, in, counts, type, op, comm), ,
     if (s.lane) together(&s, sum(counts, comm), type, ALL, comm))

#define OUT const void *out, int count, MPI_Datatype type
#define IN void *in, int in_count, MPI_Datatype in_type
#define ARGUMENTS out, count, type, in, in_count, in_type
CALL(Gather, (OUT, IN, int root, MPI_Comm comm), (ARGUMENTS, root, comm), , together(&s, GIVEN(in_count, in_type), root, comm))
CALL(Allgather, (OUT, IN, MPI_Comm comm), (ARGUMENTS, comm), , together(&s, GIVEN(in_count, in_type), ALL, comm))
CALL(Scatter, (OUT, IN, int root, MPI_Comm comm), (ARGUMENTS, root, comm), , {
    int is_root = s.lane && mine(comm) == root;
    together(&s, is_root ? count : in_count, is_root ? type : in_type, root, comm);
})
CALL(Alltoall, (OUT, IN, MPI_Comm comm), (ARGUMENTS, comm), , together(&s, GIVEN(in_count, in_type), ALL, comm))

CALL(Gatherv, (OUT, void *in, const int counts[], const int places[], MPI_Datatype in_type, int root, MPI_Comm comm),
     (out, count, type, in, counts, places, in_type, root, comm), ,
     if (s.lane) together(&s, GIVEN(counts[mine(comm)], in_type), root, comm))
CALL(Allgatherv, (OUT, void *in, const int counts[], const int places[], MPI_Datatype in_type, MPI_Comm comm),
     (out, count, type, in, counts, places, in_type, comm), , if (s.lane) together(&s, GIVEN(counts[mine(comm)], in_type), ALL, comm))
CALL(Scatterv, (const void *out, const int counts[], const int places[], MPI_Datatype type, IN, int root, MPI_Comm comm),
     (out, counts, places, type, in, in_count, in_type, root, comm), , if (s.lane) {
         int is_root = mine(comm) == root;
         together(&s, is_root ? counts[root] : in_count, is_root ? type : in_type, root, comm);
     })
CALL(Alltoallv,
     (const void *out, const int counts[], const int places[], MPI_Datatype type, void *in, const int in_counts[], const int in_places[],
      MPI_Datatype in_type, MPI_Comm comm),
     (out, counts, places, type, in, in_counts, in_places, in_type, comm), ,
     if (s.lane) together(&s, sum(out == MPI_IN_PLACE ? in_counts : counts, comm), out == MPI_IN_PLACE ? in_type : type, ALL, comm))

/* Those that go on beside the program; what waits for them is told without them. */
#define R MPI_Request *request
CALL(Ibarrier, (MPI_Comm comm, R), (comm, request), , together(&s, 0, NONE, ALL, comm))
CALL(Ibcast, (void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm, R), (buf, count, type, root, comm, request), ,
     together(&s, count, type, root, comm))
CALL(Ireduce, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm, R),
     (out, in, count, type, op, root, comm, request), , together(&s, count, type, root, comm))
CALL(Iallreduce, (const void *out, void *in, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, R), (out, in, count, type, op, comm, request), ,
     together(&s, count, type, ALL, comm))
CALL(Igather, (OUT, IN, int root, MPI_Comm comm, R), (ARGUMENTS, root, comm, request), , together(&s, GIVEN(in_count, in_type), root, comm))
CALL(Iallgather, (OUT, IN, MPI_Comm comm, R), (ARGUMENTS, comm, request), , together(&s, GIVEN(in_count, in_type), ALL, comm))
CALL(Ialltoall, (OUT, IN, MPI_Comm comm, R), (ARGUMENTS, comm, request), , together(&s, GIVEN(in_count, in_type), ALL, comm))

/* Communicators get their numbers when all their ranks make them: so ranks number alike. */
#define MADE(COMM)                                                                                                     \
    {                                                                                                                  \
        if (s.lane && s.error == MPI_SUCCESS)                                                                          \
            comm_made(*made);                                                                                          \
        comm_facts(&s, COMM);                                                                                          \
    }
CALL(Comm_dup, (MPI_Comm comm, MPI_Comm *made), (comm, made), , MADE(comm))
CALL(Comm_dup_with_info, (MPI_Comm comm, MPI_Info info, MPI_Comm *made), (comm, info, made), , MADE(comm))
CALL(Comm_split, (MPI_Comm comm, int color, int key, MPI_Comm *made), (comm, color, key, made), , MADE(comm))
CALL(Comm_split_type, (MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *made), (comm, type, key, info, made), , MADE(comm))
CALL(Comm_create, (MPI_Comm comm, MPI_Group group, MPI_Comm *made), (comm, group, made), , MADE(comm))
CALL(Comm_create_group, (MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *made), (comm, group, tag, made), , MADE(comm))
CALL(Intercomm_merge, (MPI_Comm comm, int high, MPI_Comm *made), (comm, high, made), , MADE(comm))
CALL(Cart_create, (MPI_Comm comm, int n, const int dims[], const int periods[], int reorder, MPI_Comm *made),
     (comm, n, dims, periods, reorder, made), , MADE(comm))
CALL(Cart_sub, (MPI_Comm comm, const int remains[], MPI_Comm *made), (comm, remains, made), , MADE(comm))
CALL(Graph_create, (MPI_Comm comm, int n, const int index[], const int edges[], int reorder, MPI_Comm *made),
     (comm, n, index, edges, reorder, made), , MADE(comm))
CALL(Dist_graph_create_adjacent,
     (MPI_Comm comm, int in, const int sources[], const int in_weights[], int out, const int targets[], const int out_weights[], MPI_Info info,
      int reorder, MPI_Comm *made),
     (comm, in, sources, in_weights, out, targets, out_weights, info, reorder, made), , MADE(comm))

/* Beginning and end. */
int MPI_Init(int *argc, char ***argv)
{
    int error = ((int (*)(int *, char ***))next_of("MPI_Init"))(argc, argv);
    if (error == MPI_SUCCESS)
        record_begin();
    return error;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    int error = ((int (*)(int *, char ***, int, int *))next_of("MPI_Init_thread"))(argc, argv, required, provided);
    if (error == MPI_SUCCESS)
        record_begin();
    return error;
}

/* The files are complete before: a launcher may end ranks that have finalized. */
int MPI_Finalize(void)
{
    record_end();
    return ((int (*)(void))next_of("MPI_Finalize"))();
}

int MPI_Abort(MPI_Comm comm, int code)
{
    record_flush();
    return ((int (*)(MPI_Comm, int))next_of("MPI_Abort"))(comm, code);
}
