//! Ways to do collective MPI commands; the program behind the thesis had three of most of them
//! (thesis section 5.1.2: a command may have several implementations).

/// How one rank's data comes to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Bcast {
    /// Down a binomial tree, in blocks of 1 MiB that follow each other.
    #[default]
    TreeBlocks,
    /// Down a binomial tree, the whole payload from rank to rank.
    Tree,
    /// As `Tree`, and a payload that is too large for an eager message leaves when all children
    /// have said that they are ready.
    TreeReady,
    /// From the root to every rank.
    Direct,
}

impl Bcast {
    /// All, with their names in plans.
    pub const ALL: [(&'static str, Bcast); 4] =
        [("tree_blocks", Bcast::TreeBlocks), ("tree", Bcast::Tree), ("tree_ready", Bcast::TreeReady), ("direct", Bcast::Direct)];
}

/// How everyone's data is combined at one rank. Combining costs no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reduce {
    /// Up a binomial tree; a payload that is too large for an eager message leaves when the parent
    /// has said that it is ready.
    #[default]
    TreeReady,
    /// Up a binomial tree.
    Tree,
    /// From every rank to the root.
    Direct,
}

impl Reduce {
    /// All, with their names in plans.
    pub const ALL: [(&'static str, Reduce); 3] = [("tree_ready", Reduce::TreeReady), ("tree", Reduce::Tree), ("direct", Reduce::Direct)];
}

/// How everyone's data is combined and told to all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Allreduce {
    /// A reduction to rank 0, then a broadcast down a tree in one piece.
    #[default]
    ReduceBcast,
    /// Every rank to rank 0, and rank 0 to every rank.
    Root,
    /// Pairs exchange what they have, in each round at twice the distance (recursive doubling;
    /// Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH",
    /// IJHPCA 19 (2005)). Ranks beyond a power of two have a neighbour take part for them.
    Exchange,
}

impl Allreduce {
    /// All, with their names in plans.
    pub const ALL: [(&'static str, Allreduce); 3] =
        [("reduce_bcast", Allreduce::ReduceBcast), ("root", Allreduce::Root), ("exchange", Allreduce::Exchange)];
}

/// How collective MPI commands are done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Commands {
    /// Broadcasts, those of opens included.
    pub bcast: Bcast,
    /// Reductions.
    pub reduce: Reduce,
    /// Reductions whose result everyone gets.
    pub allreduce: Allreduce,
}
