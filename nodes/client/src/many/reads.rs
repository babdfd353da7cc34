//! The data of many files: one message for each data server, as long as it fits.

use std::collections::BTreeMap;

use bytes::Bytes;
use weft_base::{Attr, Layout, Payload, ServerId, Status, StripeIndex};
use weft_call::run_window;
use weft_layout::{Distribution, FileRange, local_bytes, split};
use weft_rt::{Bulk, Runtime};
use weft_wire::ops::{DatafileRead, READS_MAX, ReadManyReply, ReadManyRequest};
use weft_wire::{BULK_BYTES_MAX, Capability};

use super::Progress;
use crate::flow::Flow;
use crate::{Client, Result, WholeFile};

/// Most messages in flight; with 8 MiB in each this bounds what waits in queues.
const MESSAGES_MAX: usize = 32;

/// All of a datafile.
struct Wanted {
    /// Of its file among those that were found.
    number: usize,
    read: DatafileRead,
}

/// What came of it.
enum Came {
    Data(Payload),
    /// The file changes at this moment.
    Other,
}

impl<R: Runtime> Client<R> {
    /// Reads files that were found: position, attributes, and the right to read. The progress of
    /// those that are not as they were found stays as it is.
    pub(super) async fn read_found(&self, flow: Flow, found: &[(usize, Attr, Capability)], progress: &mut [Progress]) {
        let mut servers: BTreeMap<ServerId, Vec<Wanted>> = BTreeMap::new();
        for (number, (position, attr, capability)) in found.iter().enumerate() {
            let distribution = stripes(&attr.layout);
            for index in 0..datafiles(&attr.layout, attr.size) {
                let bytes = local_bytes(&distribution, StripeIndex(index), attr.size) as u32;
                let read = DatafileRead { capability: *capability, index, offset: 0, bytes };
                match self.data_server(Flow { handle: attr.handle, ..flow }, &attr.layout, index).await {
                    Ok(server) => servers.entry(server).or_default().push(Wanted { number, read }),
                    Err(error) => progress[*position] = Progress::Ended(Err(error)),
                }
            }
        }
        let messages = servers.into_iter().flat_map(|(server, wanted)| cut(wanted).into_iter().map(move |wanted| (server, wanted)));
        let flows: Vec<_> = messages.map(|(server, wanted)| self.read_message_of_many(flow, server, wanted)).collect();
        let mut files: Vec<Vec<(u32, Payload)>> = Vec::with_capacity(found.len());
        files.resize_with(found.len(), Vec::new);
        for (wanted, outcome) in run_window(flows, MESSAGES_MAX).await {
            match outcome {
                Ok(came) => {
                    for (wanted, came) in wanted.into_iter().zip(came) {
                        if let Came::Data(data) = came {
                            files[wanted.number].push((wanted.read.index, data));
                        }
                    }
                }
                Err(error) => {
                    for wanted in wanted {
                        let (position, attr, _) = &found[wanted.number];
                        progress[*position] = Progress::Ended(Err(crate::Error { handle: attr.handle, ..error }));
                    }
                }
            }
        }
        for ((position, attr, _), datafiles_read) in found.iter().zip(files) {
            let is_complete = datafiles_read.len() as u32 == datafiles(&attr.layout, attr.size);
            if is_complete && matches!(progress[*position], Progress::Alone) {
                progress[*position] = Progress::Ended(Ok(WholeFile { handle: attr.handle, data: joined(attr, datafiles_read) }));
            }
        }
    }

    async fn read_message_of_many(&self, flow: Flow, server: ServerId, wanted: Vec<Wanted>) -> (Vec<Wanted>, Result<Vec<Came>>) {
        let expected = wanted.iter().map(|wanted| u64::from(wanted.read.bytes)).sum();
        let request = ReadManyRequest { reads: wanted.iter().map(|wanted| wanted.read.clone()).collect() };
        let outcome = self.call_with_bulk(flow, server, &request, Bulk::Expected(expected)).await;
        let came = outcome.and_then(|(reply, bulk)| dealt(&wanted, &reply, &bulk).ok_or(flow.error_at(Status::BadMessage, server)));
        (wanted, came)
    }
}

fn stripes(layout: &Layout) -> Distribution {
    Distribution::of(layout).expect("files with strips are read alone")
}

/// In how many datafiles the bytes of a file are.
fn datafiles(layout: &Layout, size: u64) -> u32 {
    size.div_ceil(u64::from(layout.stripe_bytes)).min(u64::from(layout.width)) as u32
}

/// Messages of bounded size.
fn cut(wanted: Vec<Wanted>) -> Vec<Vec<Wanted>> {
    let mut messages: Vec<Vec<Wanted>> = Vec::new();
    let mut bytes_left = 0;
    for wanted in wanted {
        let bytes = wanted.read.bytes as usize;
        match messages.last_mut() {
            Some(message) if bytes <= bytes_left && message.len() < READS_MAX => message.push(wanted),
            _ => {
                bytes_left = BULK_BYTES_MAX;
                messages.push(vec![wanted]);
            }
        }
        bytes_left -= bytes;
    }
    messages
}

/// Gives each datafile its bytes. `None` if the reply does not fit the request.
fn dealt(wanted: &[Wanted], reply: &ReadManyReply, bulk: &Payload) -> Option<Vec<Came>> {
    let fits = reply.got.len() == wanted.len()
        && reply.got.iter().zip(wanted).all(|(got, wanted)| got.as_ref().map_or(0, |got| got.bytes) <= wanted.read.bytes)
        && reply.got.iter().flatten().map(|got| u64::from(got.bytes)).sum::<u64>() == bulk.len();
    if !fits {
        return None;
    }
    let mut at = 0;
    let came = reply.got.iter().zip(wanted).map(|(got, wanted)| {
        let Ok(got) = got else { return Came::Other };
        let data = bulk.slice(at, u64::from(got.bytes));
        at += u64::from(got.bytes);
        // What is missing is a hole, or was cut off; what is more was written meanwhile.
        let is_all = got.bytes == wanted.read.bytes && got.size == u64::from(wanted.read.bytes);
        if is_all { Came::Data(data) } else { Came::Other }
    });
    Some(came.collect())
}

/// A file from all of its datafiles.
fn joined(attr: &Attr, mut datafiles: Vec<(u32, Payload)>) -> Payload {
    if let [(_, _)] = datafiles.as_slice() {
        return datafiles.pop().expect("just seen").1;
    }
    if let Some(tag) = datafiles.iter().find_map(|(_, data)| match data {
        Payload::Synthetic { tag, .. } => Some(*tag),
        Payload::Real(_) => None,
    }) {
        return Payload::Synthetic { len: attr.size, tag };
    }
    let whole = [FileRange { offset: 0, bytes: attr.size }];
    let lists = split(&stripes(&attr.layout), &whole).expect("it is shorter than the longest file");
    let mut stripes: Vec<(u64, Bytes)> = Vec::new();
    for (index, data) in datafiles {
        let mut data: Bytes = data.to_bytes();
        let list = lists.iter().find(|list| list.index == StripeIndex(index)).expect("it has bytes of the file");
        stripes.extend(list.slices.iter().map(|slice| (slice.start, data.split_to(slice.bytes as usize))));
    }
    stripes.sort_unstable_by_key(|(start, _)| *start);
    let mut file = Vec::with_capacity(attr.size as usize);
    for (start, stripe) in stripes {
        assert_eq!(start, file.len() as u64, "stripes of a file follow each other");
        file.extend_from_slice(&stripe);
    }
    Payload::Real(file.into())
}
