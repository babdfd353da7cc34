//! The ways to broadcast and to reduce, by their messages and their critical paths.

use weft_model::units::{KIB, MIB, transfer_nanos};
use weft_piosim::program::{Application, Command, WORLD};
use weft_piosim::{Allreduce, Bcast, ClusterConfig, Commands, Reduce, Report, Simulation};
use weft_sched::LayerKind;

const STEP: u64 = 1_000;
const LATENCY: u64 = 200_000;
/// Beside the payload.
const HEADER: u64 = 20;

fn run(commands: Commands, ranks: u32, command: Command) -> Report {
    let mut app = Application::new("one", ranks);
    app.push_all(command);
    let config = ClusterConfig { commands, ..ClusterConfig::thesis(ranks, 1, LayerKind::None).natural() };
    let report = Simulation::new(&config, &app).and_then(Simulation::run).expect("the program is sound");
    assert_eq!(report.unreceived_messages, 0);
    report
}

fn bcast(bcast: Bcast, ranks: u32, root: u32, bytes: u64) -> Report {
    run(Commands { bcast, ..Commands::default() }, ranks, Command::Bcast { comm: WORLD, root, bytes })
}

fn reduce(reduce: Reduce, ranks: u32, bytes: u64) -> Report {
    run(Commands { reduce, ..Commands::default() }, ranks, Command::Reduce { comm: WORLD, root: 0, bytes })
}

fn allreduce(allreduce: Allreduce, ranks: u32, bytes: u64) -> Report {
    run(Commands { allreduce, ..Commands::default() }, ranks, Command::Allreduce { comm: WORLD, bytes })
}

/// A message of one packet on an idle network.
fn message(bytes: u64) -> u64 {
    2 * LATENCY + 2 * transfer_nanos(bytes, 100 * MIB) + transfer_nanos(bytes, 1000 * MIB)
}

#[test]
fn every_broadcast_sends_the_data_to_each_rank_once() {
    for (name, how) in Bcast::ALL {
        for (ranks, root, bytes) in [(1, 0, 7), (2, 1, 7), (8, 3, 50 * KIB), (11, 10, 3 * MIB + 5)] {
            let blocks = if how == Bcast::TreeBlocks { bytes.div_ceil(MIB) } else { 1 };
            let asks = u64::from(how == Bcast::TreeReady && bytes > 100 * KIB);
            let others = u64::from(ranks - 1);
            let report = bcast(how, ranks, root, bytes);
            assert_eq!(report.messages, others * (blocks + asks), "{name} {ranks}");
            assert_eq!(report.network_bytes, others * (bytes + HEADER * (blocks + asks)), "{name} {ranks}");
        }
    }
}

#[test]
fn a_tree_is_as_deep_as_the_logarithm_and_the_direct_way_waits_for_the_roots_card() {
    for rounds in 1..=6 {
        let (ranks, bytes) = (1 << rounds, KIB);
        let path = STEP + rounds * (message(bytes + HEADER) + STEP);
        for how in [Bcast::Tree, Bcast::TreeBlocks, Bcast::TreeReady] {
            assert_eq!(bcast(how, ranks, 0, bytes).ranks_end_nanos(), path, "{how:?} {ranks}");
        }
        let card = transfer_nanos(bytes + HEADER, 100 * MIB);
        assert_eq!(bcast(Bcast::Direct, ranks, 0, bytes).ranks_end_nanos(), STEP + (u64::from(ranks) - 2) * card + message(bytes + HEADER));
    }
}

#[test]
fn blocks_follow_each_other_down_the_tree_and_large_payloads_wait_for_the_ready() {
    let bytes = 16 * MIB;
    let [blocks, whole, ready, direct] =
        [Bcast::TreeBlocks, Bcast::Tree, Bcast::TreeReady, Bcast::Direct].map(|how| bcast(how, 16, 0, bytes).ranks_end_nanos());
    let transfer = transfer_nanos(bytes, 100 * MIB);
    // A card sends to all children in turns, so each of them has the payload after all of them: 4,
    // 3, 2 and 1 transfers on the longest way. Of blocks only the first one takes that way alone.
    assert!((10 * transfer..10 * transfer + 20 * message(100 * KIB)).contains(&whole), "{whole} {transfer}");
    assert!(blocks < whole && blocks > 4 * transfer, "{blocks} {whole}");
    // One message of 20 bytes and two steps before the data.
    assert!((whole..whole + 2 * (message(HEADER) + STEP)).contains(&ready) && ready > whole, "{ready} {whole}");
    assert!(direct > 15 * transfer, "{direct}");
}

#[test]
fn reductions_count_messages_and_rounds() {
    for rounds in 1..=5_u32 {
        let (ranks, bytes) = (1 << rounds, KIB);
        let others = u64::from(ranks - 1);
        for (name, how) in Reduce::ALL {
            assert_eq!(reduce(how, ranks, bytes).messages, others, "{name}");
            let asks = u64::from(how == Reduce::TreeReady);
            assert_eq!(reduce(how, ranks, MIB).messages, others * (1 + asks), "{name}");
        }
        // A step for the command, one for the exchange, and one for each rank in between.
        let path = u64::from(rounds) * (message(bytes + HEADER) + STEP) + STEP;
        // Messages of the same round meet in the switch.
        let switch = transfer_nanos(bytes + HEADER, 1000 * MIB);
        let tree = reduce(Reduce::Tree, ranks, bytes).ranks_end_nanos();
        assert!((path..=path + others * switch).contains(&tree), "{ranks}: {tree} {path}");
        // All messages at once; they meet at the port of the root.
        let port = transfer_nanos(bytes + HEADER, 100 * MIB);
        let direct = reduce(Reduce::Direct, ranks, bytes).ranks_end_nanos();
        let expected = STEP + message(bytes + HEADER) + (others - 1) * port;
        assert!(direct.abs_diff(expected) <= others * switch, "{ranks}: {direct} {expected}");
    }
}

#[test]
fn all_reductions_give_everyone_the_result_by_other_ways() {
    for ranks in [1_u32, 2, 3, 6, 8, 13, 16] {
        let (power, others) = (1_u64 << ranks.ilog2(), u64::from(ranks - 1));
        let beyond = u64::from(ranks) - power;
        assert_eq!(allreduce(Allreduce::ReduceBcast, ranks, KIB).messages, 2 * others);
        assert_eq!(allreduce(Allreduce::Root, ranks, KIB).messages, 2 * others);
        assert_eq!(allreduce(Allreduce::Exchange, ranks, KIB).messages, 2 * beyond + power * u64::from(ranks.ilog2()), "{ranks}");
    }
    // Four rounds of exchange against eight of a tree up and down.
    let [tree, exchange] = [Allreduce::ReduceBcast, Allreduce::Exchange].map(|how| allreduce(how, 16, 100).ranks_end_nanos());
    assert!(exchange * 19 / 10 < tree && tree < exchange * 21 / 10, "{exchange} {tree}");
}
