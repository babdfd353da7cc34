//! How programs ask, and what all servers together can do: what says more than a place at which
//! nothing is wrong.

use weft_base::{ServerId, ServerRole};

use super::finding::{Cause, Finding, Known, MOST, stands_out, work_at};
use super::signs::{self, Crowd, Pieces};
use super::suspect::Place;
use super::wall::{Wall, is_work};

/// Fewer operations at once leave servers without work between two requests.
const FEW: f64 = 1.5;
/// So many threads of programs are several, also if one began a little later.
const SEVERAL: f64 = 1.8;
/// Pieces below this size cost more than their bytes.
const SMALL_BYTES: u64 = 64 << 10;
/// Fewer reads and writes say nothing about pieces.
const PIECES_MIN: u64 = 100;
/// Places that all have this share of the time on the wall cannot do much more.
const FULL: f64 = 0.8;

/// All servers of a kind are busy for nearly all of the time, with several operations at once.
pub(super) fn limit(wall: &Wall, known: &Known<'_>) -> Option<Finding> {
    let first = known.named.first().filter(|first| is_work(first.stage) && !stands_out(&first.suspect))?;
    let Place::TracedNode(node) = first.place else { return None };
    let number = |node: usize| known.analysis.merged.nodes[node].server.map(ServerId);
    let role = number(node)?.role();
    let alike =
        known.work.iter().filter_map(|(node, seconds)| Some((number(*node)?, *seconds))).filter(|(server, _)| server.role() == role);
    let (indexes, shares): (Vec<usize>, Vec<f64>) = alike.map(|(server, s)| (server.index(), wall.share(s))).unzip();
    let least = shares.iter().copied().fold(1.0, f64::min);
    let are_all = indexes.iter().max().is_some_and(|last| *last < indexes.len());
    (are_all && indexes.len() > 1 && least >= FULL && wall.at_once >= FEW).then(|| {
        let kind = if role == ServerRole::Data { "data" } else { "metadata" };
        let sentence = format!(
            "Nothing is wrong: all {} {kind} servers are busy alike, each for at least {:.0} % of the time on the wall, most of all with {}: \
             this is near the limit of this hardware",
            indexes.len(),
            least * 100.0,
            first.stage.title()
        );
        Finding::new(Cause::Limit, least, sentence, "Do: add servers of this kind (`weft up`), or faster ones")
    })
}

/// Several programs want one directory or one file: they wait for one another in the kernel, which
/// lets one of a mount change a directory at a time, in the mount and at the server that holds it.
pub(super) fn crowd(wall: &Wall, known: &Known<'_>) -> Option<Finding> {
    let Crowd { handle, is_directory, count, part, callers } = signs::crowd(known.operations)?;
    (part > MOST && callers >= SEVERAL).then(|| {
        let server = known.analysis.server_name(handle.server().0);
        let what = if is_directory { "directory" } else { "file" };
        let sentence = format!(
            "Everybody wants the same: {count} operations, {:.0} % of the time, are about one {what} ({handle}, at {server}), of \
             {callers:.1} threads of programs at once",
            part * 100.0,
        );
        let advice = if is_directory {
            "Do: give programs directories of their own, or spread a large one over servers (`weft split`, the hint `presplit`)"
        } else {
            "Do: open it once for each program and keep it open, or let each have a file of its own"
        };
        let share = wall.share(wall.busy_seconds) * part;
        Finding { place: Some(server), ..Finding::new(Cause::HotDirectory, share, sentence, advice) }
    })
}

/// Reads and writes are small.
pub(super) fn small_pieces(wall: &Wall, seconds: f64, known: &Known<'_>) -> Option<Finding> {
    let Pieces { count, bytes, dur_ns } = signs::pieces(known.operations);
    let part = dur_ns as f64 / 1e9 / seconds.max(f64::MIN_POSITIVE);
    (count >= PIECES_MIN && bytes / count < SMALL_BYTES && part > MOST).then(|| {
        let share = wall.share(wall.busy_seconds) * part;
        let sentence = format!(
            "Small pieces: {count} reads and writes of {:.1} KiB on the mean take {:.0} % of the operations' time",
            bytes as f64 / count as f64 / 1024.0,
            part * 100.0
        );
        let advice = "Do: read and write more at once (buffers of 1 MiB), or hand many pieces over together (`readv`, collective MPI-IO)";
        Finding::new(Cause::SmallPieces, share, sentence, advice)
    })
}

/// Programs ask for one thing after the other.
pub(super) fn few(wall: &Wall, known: &Known<'_>) -> Option<Finding> {
    let servers = known.analysis.merged.nodes.iter().filter(|node| node.server.is_some());
    let most = servers.map(|node| work_at(known, &node.name)).fold(0.0, f64::max) / wall.busy_seconds.max(f64::MIN_POSITIVE);
    (wall.at_once < FEW && most < MOST).then(|| {
        let sentence = format!(
            "Too few requests in flight: {:.1} operations were under way at once, and no server worked on them for more than {:.0} % of that \
             time",
            wall.at_once,
            most * 100.0
        );
        let advice = "Do: ask for more at once (more processes or threads, asynchronous calls): the servers have room";
        Finding::new(Cause::FewInFlight, wall.share(wall.busy_seconds) * (1.0 - most), sentence, advice)
    })
}
