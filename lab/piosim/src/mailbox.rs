//! Matching of messages between ranks: by communicator, tag, stream, sender and receiver, first in,
//! first out on both sides. Messages that nobody waits for yet are kept.

use weft_base::FastMap;
use weft_model::Pool;

const NONE: u32 = u32::MAX;

/// Streams that share the tags of a communicator without disturbing each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Messages of the program: data, or the question whether it may be sent.
    User,
    /// Answers to such questions.
    Ready,
    /// Data after such an answer.
    Data,
    /// Collective commands.
    Collective,
    /// Lists of extents in collective I/O.
    Lists,
    /// Data in collective I/O.
    Pieces,
}

/// What is matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Application and communicator, numbered together.
    pub comm: u32,
    /// The program's tag.
    pub tag: u32,
    /// The stream.
    pub stream: Stream,
    /// Sending process; [`ANY`] in a receive that takes all.
    pub from: u32,
    /// Receiving process.
    pub to: u32,
}

/// As [`Key::from`] of a receive: any sender.
pub const ANY: u32 = u32::MAX;

/// A message between ranks that is under way or waits to be received.
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// What it is matched by.
    pub key: Key,
    /// The task that sent it.
    pub sender: u32,
    /// It only asks whether data may be sent.
    pub asks: bool,
    /// Its length.
    pub bytes: u64,
    /// When the sender handed it to its card, nanoseconds.
    pub sent_at: u64,
    matched: Option<u32>,
    complete: bool,
    /// Order of arrival.
    order: u64,
    next: u32,
}

#[derive(Clone, Copy)]
struct Posted {
    task: u32,
    order: u64,
    next: u32,
}

#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

impl List {
    const EMPTY: List = List { head: NONE, tail: NONE };

    /// Puts something at the end; `link` lets what was the last one know it.
    fn push(&mut self, index: u32, link: impl FnOnce(u32)) {
        match self.head {
            NONE => self.head = index,
            _ => link(self.tail),
        }
        self.tail = index;
    }
}

/// All messages and receives of a cluster.
#[derive(Default)]
pub struct Mailbox {
    envelopes: Pool<Envelope>,
    posted: Pool<Posted>,
    waiting_receives: FastMap<Key, List>,
    waiting_messages: FastMap<Key, List>,
    /// Receives from anybody that are posted; if there are none, arrivals need not look for them.
    any_posted: usize,
    order: u64,
}

impl Mailbox {
    /// A message that is about to be sent.
    pub fn envelope(&mut self, key: Key, sender: u32, (asks, bytes): (bool, u64), sent_at: u64) -> u32 {
        self.envelopes.add(Envelope { key, sender, asks, bytes, sent_at, matched: None, complete: false, order: 0, next: NONE })
    }

    /// The envelope of this number.
    pub fn get(&self, envelope: u32) -> &Envelope {
        &self.envelopes[envelope as usize]
    }

    /// Messages nobody has received and receives nobody has sent to.
    pub fn leftovers(&self) -> usize {
        self.waiting_messages.len() + self.waiting_receives.len()
    }

    /// A task wants to receive. `Some` is a message that is there already, as a whole; it is taken.
    /// Otherwise the task hears of it by [`Mailbox::arrived`].
    pub fn receive(&mut self, key: Key, task: u32) -> Option<Envelope> {
        let waiting = if key.from == ANY { self.oldest_to(key) } else { Some(key) };
        if let Some(envelope) = waiting.and_then(|key| self.take_message(key)) {
            let state = &mut self.envelopes[envelope as usize];
            if !state.complete {
                state.matched = Some(task);
                return None;
            }
            let taken = *state;
            self.envelopes.free(envelope);
            return Some(taken);
        }
        self.order += 1;
        self.any_posted += usize::from(key.from == ANY);
        let index = self.posted.add(Posted { task, order: self.order, next: NONE });
        self.waiting_receives.entry(key).or_insert(List::EMPTY).push(index, |last| self.posted[last as usize].next = index);
        None
    }

    /// A packet of the message has arrived; `complete` with the last. Returns the task whose
    /// receive is thereby done, and the message, whose number is free again.
    pub fn arrived(&mut self, envelope: u32, first: bool, complete: bool) -> Option<(u32, Envelope)> {
        if first {
            self.order += 1;
            self.envelopes[envelope as usize].order = self.order;
            let key = self.envelopes[envelope as usize].key;
            match self.take_receive(key) {
                Some(task) => self.envelopes[envelope as usize].matched = Some(task),
                None => {
                    let link = |last: u32| self.envelopes[last as usize].next = envelope;
                    self.waiting_messages.entry(key).or_insert(List::EMPTY).push(envelope, link);
                }
            }
        }
        let state = &mut self.envelopes[envelope as usize];
        state.complete = complete;
        match (complete, state.matched) {
            (true, Some(task)) => {
                let taken = *state;
                self.envelopes.free(envelope);
                Some((task, taken))
            }
            _ => None,
        }
    }

    fn take_message(&mut self, key: Key) -> Option<u32> {
        let list = self.waiting_messages.get_mut(&key)?;
        let envelope = list.head;
        list.head = self.envelopes[envelope as usize].next;
        if list.head == NONE {
            self.waiting_messages.remove(&key);
        }
        self.envelopes[envelope as usize].next = NONE;
        Some(envelope)
    }

    /// The receive that has waited longest for this message.
    fn take_receive(&mut self, key: Key) -> Option<u32> {
        let exact = self.waiting_receives.get(&key).map(|list| self.posted[list.head as usize].order);
        let mut key = key;
        if self.any_posted > 0 {
            let any = Key { from: ANY, ..key };
            if let Some(list) = self.waiting_receives.get(&any)
                && exact.is_none_or(|exact| self.posted[list.head as usize].order < exact)
            {
                self.any_posted -= 1;
                key = any;
            }
        }
        let list = self.waiting_receives.get_mut(&key)?;
        let index = list.head;
        let posted = self.posted[index as usize];
        list.head = posted.next;
        if list.head == NONE {
            self.waiting_receives.remove(&key);
        }
        self.posted.free(index);
        Some(posted.task)
    }

    /// The stream of the message to this receiver that arrived first, whoever sent it. A walk over
    /// all of them: receives from anybody are rare.
    fn oldest_to(&self, any: Key) -> Option<Key> {
        let matching = self.waiting_messages.iter().filter(|(key, _)| Key { from: ANY, ..**key } == any);
        matching.min_by_key(|(_, list)| self.envelopes[list.head as usize].order).map(|(key, _)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(from: u32, tag: u32) -> Key {
        Key { comm: 0, tag, stream: Stream::User, from, to: 9 }
    }

    #[test]
    fn messages_and_receives_match_in_order_and_by_key() {
        let mut mailbox = Mailbox::default();
        let (a, b, c) = (
            mailbox.envelope(key(1, 0), 11, (false, 1), 0),
            mailbox.envelope(key(1, 0), 12, (false, 1), 0),
            mailbox.envelope(key(1, 1), 13, (false, 1), 0),
        );
        assert!(mailbox.arrived(a, true, true).is_none(), "nobody waits");
        assert!(mailbox.receive(key(1, 1), 21).is_none(), "another tag");
        assert_eq!(mailbox.receive(key(1, 0), 22).map(|envelope| envelope.sender), Some(11));
        assert!(mailbox.receive(key(1, 0), 23).is_none());
        assert!(mailbox.arrived(b, true, false).is_none(), "only the first packet");
        assert_eq!(mailbox.arrived(c, true, true).map(|(task, _)| task), Some(21));
        assert_eq!(mailbox.arrived(b, false, true).map(|(task, _)| task), Some(23));
        assert_eq!(mailbox.leftovers(), 0);
    }

    #[test]
    fn a_receive_from_anybody_takes_the_oldest_message_and_keeps_its_place() {
        let mut mailbox = Mailbox::default();
        for sender in [5, 3] {
            let envelope = mailbox.envelope(key(sender, 0), sender, (false, 1), 0);
            mailbox.arrived(envelope, true, true);
        }
        assert_eq!(mailbox.receive(key(ANY, 0), 1).map(|envelope| envelope.sender), Some(5));
        assert_eq!(mailbox.receive(key(ANY, 0), 1).map(|envelope| envelope.sender), Some(3));
        mailbox.receive(key(ANY, 0), 1);
        mailbox.receive(key(7, 0), 2);
        let (first, second) = (mailbox.envelope(key(7, 0), 0, (false, 1), 0), mailbox.envelope(key(7, 0), 0, (false, 1), 0));
        assert_eq!(mailbox.arrived(first, true, true).map(|(task, _)| task), Some(1));
        assert_eq!(mailbox.arrived(second, true, true).map(|(task, _)| task), Some(2));
    }
}
