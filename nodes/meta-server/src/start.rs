//! Starting: format or recover, then serve.

use weft_base::{ServerId, ServerRole};
use weft_journal::Superblock;
use weft_layout::INLINE_BYTES_MAX;
use weft_namespace::{Change, Record, Settings, State, encode};
use weft_rt::{Disk, ServerRuntime};
use weft_serving::{Life, Meets, begin_life, find_store, make_journal, make_superblock, replay_journal, stored_durability};
use weft_wire::NameKey;

use crate::container::Contents;
use crate::contents::{FoundContainer, Replay};
use crate::engine::{Engine as KeepsRecords, JournalEngine, MemoryEngine, Plan, RowEngine};
use crate::server::Server;
use crate::{Engine, MetaServerConfig, ServerError};

/// More handles than can be given out between two flushes of the journal.
const HANDLES_LOST_MAX: u64 = 1 << 24;
/// More handles than a server has given out since an older copy of its store was made.
const HANDLES_SINCE_COPY_MAX: u64 = 1 << 36;

/// Runs a metadata server until it must stop, or is asked to: then everything is on stable storage
/// when it ends.
///
/// # Errors
/// [`ServerError`]: the configuration makes no sense, the directory holds no store or somebody
/// else's, or the journal is damaged or has failed, so that nothing acknowledged from now on would
/// be safe.
pub async fn run<R: ServerRuntime>(rt: R, mut config: MetaServerConfig) -> Result<(), ServerError> {
    check_config(&config)?;
    config.serving.durability = stored_durability(rt.disk(), &config.serving).await?;
    let mut state = State::new(settings(&config));
    if config.split.names_max > 0 {
        state.tell_large(config.split.names_max);
    }
    match config.serving.engine {
        Engine::Memory => {
            root_changes(&rt, &config).into_iter().for_each(|change| state.apply_change(change));
            let life = Life::unkept(rt.random());
            serve(rt, MemoryEngine::<R::Disk>::new(), config, life, state, Contents::default()).await
        }
        Engine::Journal => {
            let superblock = find_or_format(&rt, &config).await?;
            let container = FoundContainer::find(rt.disk(), &config.serving).await;
            let replay = Replay { disk: rt.disk(), container: &container, state: &mut state };
            let (journal, power_was_cut) = replay_journal(&rt, &config.serving, &superblock, replay).await?;
            let engine = JournalEngine::new(journal, &config);
            let contents = container.kept_by(&mut state)?;
            let life = begin(&rt, &config, superblock, power_was_cut, &engine, &mut state).await?;
            serve(rt, engine, config, life, state, Contents::new(contents)).await
        }
        Engine::Db | Engine::Dbpf => {
            let superblock = find_or_format(&rt, &config).await?;
            let power_was_cut = superblock.boot_id != rt.disk().boot_id();
            let take = |change| state.apply_change(change);
            let engine = RowEngine::recover(rt.disk(), plan(&config), &config.serving, take).await?;
            let life = begin(&rt, &config, superblock, power_was_cut, &engine, &mut state).await?;
            serve(rt, engine, config, life, state, Contents::default()).await
        }
    }
}

/// Makes the empty metadata of a server: its journal, on server 0 the root directory, at last the
/// superblock.
///
/// # Errors
/// [`ServerError::Journal`]. What a failed attempt leaves behind is no metadata; try again.
pub async fn format<R: ServerRuntime>(rt: &R, config: &MetaServerConfig) -> Result<(), ServerError> {
    check_config(config)?;
    match config.serving.engine {
        Engine::Memory | Engine::Journal => {
            let journal = make_journal(rt, &config.serving).await?;
            put_root(rt, config, &JournalEngine::new(journal, config)).await?;
        }
        Engine::Db | Engine::Dbpf => {
            let engine = RowEngine::make(rt.disk(), plan(config), &config.serving).await?;
            put_root(rt, config, &engine).await?;
            engine.bring_to_rest().await?;
        }
    }
    make_superblock(rt, &config.serving, rt.disk().boot_id()).await.map(drop)
}

async fn put_root<R: ServerRuntime>(rt: &R, config: &MetaServerConfig, engine: &impl KeepsRecords) -> Result<(), ServerError> {
    let changes = root_changes(rt, config);
    if !changes.is_empty() {
        let mut record = Vec::new();
        encode(&changes, &mut record);
        let root = engine.append(&record);
        engine.commit().await?;
        engine.sync_through(root).await?;
    }
    Ok(())
}

fn plan(config: &MetaServerConfig) -> Plan {
    if config.serving.engine == Engine::Dbpf { Plan::PerObject } else { Plan::One }
}

fn check_config(config: &MetaServerConfig) -> Result<(), ServerError> {
    let refuse = |text: String| Err(ServerError::Config(text));
    let (server, map) = (config.serving.server, &config.serving.map);
    if server.role() != ServerRole::Meta || map.server(server).is_none() {
        return refuse(format!("{server} is no metadata server of the file system {}", map.fs_name));
    }
    if map.data.is_empty() {
        return refuse(format!("the file system {} has no data server", map.fs_name));
    }
    if map.fs_id.0 == 0 {
        return refuse("the id of the file system is 0".into());
    }
    if config.serving.journal_segment_bytes < 256 << 10 {
        return refuse(format!(
            "journal segments of {} bytes are too small, at least 256 KiB are needed",
            config.serving.journal_segment_bytes
        ));
    }
    if config.inline_limit > INLINE_BYTES_MAX {
        return refuse(format!("no file of {} bytes lies beside its inode, at most {INLINE_BYTES_MAX} do", config.inline_limit));
    }
    if let Err(status) = weft_layout::check(&map.default_layout()) {
        return refuse(format!("default striping of the file system {}: {status}", map.fs_name));
    }
    Ok(())
}

fn settings(config: &MetaServerConfig) -> Settings {
    let name_key = NameKey::of(&config.serving.key, config.serving.map.fs_id);
    // The other engines keep no contents.
    let inline_limit = if config.serving.engine == Engine::Journal { config.inline_limit } else { 0 };
    Settings { server: config.serving.server, name_key, xattr_bytes_max: config.xattr_bytes_max, inline_limit }
}

fn root_changes<R: ServerRuntime>(rt: &R, config: &MetaServerConfig) -> Vec<Change> {
    if config.serving.server != ServerId(0) {
        return Vec::new();
    }
    vec![State::format(0o755, config.root_owner, config.serving.map.default_layout(), rt.wall())]
}

async fn find_or_format<R: ServerRuntime>(rt: &R, config: &MetaServerConfig) -> Result<Superblock, ServerError> {
    let mut found = find_store(rt.disk(), &config.serving).await?;
    if found.is_none() {
        format(rt, config).await?;
        found = find_store(rt.disk(), &config.serving).await?;
    }
    found.ok_or_else(|| ServerError::NotFormatted(config.serving.name.clone()))
}

/// The state is what an earlier life has left: counts one start more.
async fn begin<R: ServerRuntime>(
    rt: &R,
    config: &MetaServerConfig,
    superblock: Superblock,
    power_was_cut: bool,
    engine: &impl KeepsRecords,
    state: &mut State,
) -> Result<Life, ServerError> {
    if superblock.boot > 0 {
        // Whatever is promised now, it was perhaps not when files were opened. A machine that was
        // shut down in order has taken nothing.
        let is_older = config.serving.meets == Meets::OthersWithOlderStore;
        state.begin_grace(is_older || power_was_cut && !superblock.has_stopped());
        if is_older {
            skip_lost_handles(engine, state, HANDLES_SINCE_COPY_MAX).await?;
        } else if power_was_cut {
            skip_lost_handles(engine, state, HANDLES_LOST_MAX).await?;
        }
    }
    begin_life(rt.disk(), superblock, rt.disk().boot_id()).await
}

/// A power cut may have taken files whose handles clients and data servers still know, or an older
/// copy of the store lacks them. So many handles are never given out again; the next power cut must
/// not undo that, so it is made durable before the superblock says that this one is dealt with.
async fn skip_lost_handles(engine: &impl KeepsRecords, state: &mut State, most: u64) -> Result<(), ServerError> {
    let next = state.next_handle().counter() + most;
    let mut record = Record { changes: vec![Change::PutCounter { next }], open: None };
    let mut encoded = Vec::new();
    record.encode(&mut encoded);
    let lsn = engine.append(&encoded);
    state.apply(&mut record);
    engine.commit().await?;
    engine.sync_through(lsn).await?;
    Ok(())
}

async fn serve<R: ServerRuntime, E: KeepsRecords>(
    rt: R,
    engine: E,
    config: MetaServerConfig,
    life: Life,
    state: State,
    contents: Contents,
) -> Result<(), ServerError> {
    let server = Server::new(rt, engine, config, life, state, contents);
    debug_assert!(!server.engine.has_pending(), "recovery leaves nothing to commit");
    server.start_background();
    weft_serving::serve(&server).await
}
