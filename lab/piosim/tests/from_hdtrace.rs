//! Programs from traces: a small run written here, and the traced application of 2009 if it is at
//! hand.

use std::path::Path;

use weft_hdtrace::{Project, Trace, project_stem};
use weft_piosim::from_hdtrace::{import, rank_traces};
use weft_piosim::program::{Access, Command, Extent, WORLD};

const PROJECT: &str = r#"<Application name="small">
 <FileList><File name="a"><InitialSize>100</InitialSize></File></FileList>
 <Topology>
  <Level type="Host"><Level type="Rank"><Level type="Thread"/></Level></Level>
  <Node name="h2"><Node name="1"><Node name="0"/></Node></Node>
  <Node name="h1"><Node name="0"><Node name="0"/><Node name="1"/></Node></Node>
 </Topology>
 <CommunicatorList>
  <Communicator name="WORLD"><Rank global="1" local="1" cid="0"/><Rank global="0" local="0" cid="5"/></Communicator>
  <Communicator name=""><Rank global="0" local="1" cid="6"/><Rank global="1" local="0" cid="0x"/></Communicator>
 </CommunicatorList>
 <Datatypes><Rank name="0" thread="0">
  <NAMED id="1" name="MPI_DOUBLE"/><NAMED id="2" name="MPI_UB"/>
  <STRUCT id="3" name="" count="2"><Type id="1" displacement="8" blocklen="1"/><Type id="2" displacement="24" blocklen="1"/></STRUCT>
  <STRUCT id="4" name="" count="1"><Type id="1" displacement="-8" blocklen="1"/></STRUCT>
  <CONTIGUOUS id="7" count="2" oldType="7"/>
  <CONTIGUOUS id="8" count="9223372036854775807" oldType="3"/>
  <VECTOR id="9" count="1125899906842624" blocklength="0" stride="1" oldType="3"/>
  <STRUCT id="10" name="" count="2"><Type id="9" displacement="0" blocklen="1"/><Type id="1" displacement="8" blocklen="1"/></STRUCT>
  <VECTOR id="11" count="4" blocklength="0" stride="9223372036854775807" oldType="2"/>
 </Rank></Datatypes>
</Application>"#;

fn project() -> Project {
    Project::read(PROJECT.replace("0x", "9").as_bytes()).complete().expect("sound")
}

/// The commands of rank 0 whose trace has these states.
fn commands(states: &str) -> Result<(Vec<Command>, Vec<String>), String> {
    let trace =
        |states: &str| Trace::read(format!("<Program timeAdjustment='7.5'>{states}</Program>").as_bytes()).complete().expect("sound");
    let imported = import(&project(), &[trace(states), trace("")]).map_err(|error| error.to_string())?;
    Ok((imported.application.programs[0].commands.clone(), imported.notes))
}

#[test]
fn traces_are_named_by_rank_and_first_thread() {
    assert_eq!(rank_traces(&project(), project_stem("x.proj")).expect("two ranks"), ["x_h1_0_0.trc", "x_h2_1_0.trc"]);
    let renamed = |from: &str, to: &str| {
        let project = Project::read(PROJECT.replace("0x", "9").replace(from, to).as_bytes()).complete().expect("sound");
        rank_traces(&project, "x").expect_err(to).problem
    };
    assert_eq!(renamed("<Node name=\"1\"><Node name=\"0\"/>", "<Node name=\"2\"><Node name=\"0\"/>"), "rank 1 is missing in the topology");
    assert_eq!(renamed("<Node name=\"1\"><Node name=\"0\"/>", "<Node name=\"0\">"), "rank 0 stands twice in the topology");
    let said = renamed("\"Rank\"", "\"Rang\"");
    assert!(said.starts_with("the topology has no rank: ") && said.contains("`weft trace mpi`"), "{said}");
}

#[test]
fn time_between_known_calls_is_computation_with_unknown_calls_in_it() {
    let (found, notes) = commands(
        "<Init time='0.1' end='0.2'/>
         <Barrier cid='5' time='0.5' end='0.600000'/>
         <Type_commit tid='1' time='0.6' end='0.7'/>
         <Nested><Send size='1' toRank='1' toTag='0' cid='5' time='0.61' end='0.62'/></Nested>
         <Bcast size='10' rootRank='1' cid='5' time='0.602001' end='0.603'/>
         <Gather size='3' root='1' cid='6' time='0.603' end='0.603'/>
         <Reduce size='3' rootRank='0' cid='5' time='0.6029' end='0.604'/>
         <Allreduce size='4' cid='5' time='0.6040009' end='0.605'/>
         <Finalize time='0.7' end='0.8'/>",
    )
    .expect("sound");
    let expected = [
        Command::Barrier { comm: WORLD },
        Command::Compute { cycles: 2001 },
        Command::Bcast { comm: WORLD, root: 1, bytes: 10 },
        Command::Gather { comm: 1, root: 1, bytes: 3 },
        Command::Reduce { comm: WORLD, root: 0, bytes: 3 },
        Command::Allreduce { comm: WORLD, bytes: 4 },
    ];
    assert_eq!((found.as_slice(), notes), (expected.as_slice(), Vec::new()));
}

#[test]
fn messages_keep_tags_numbers_and_any_source() {
    let (found, _) = commands(
        "<Send size='9' toRank='1' toTag='4' cid='5' aid='3' time='0' end='0'/>
         <Recv fromRank='-1' fromTag='2' cid='6' time='0' end='0'/>
         <Sendrecv size='8' toRank='1' toTag='4' fromRank='0' fromTag='5' cid='5' time='0' end='0'/>
         <Wait time='0' end='0'><For aid='3'/></Wait>",
    )
    .expect("sound");
    let expected = [
        Command::Send { comm: WORLD, to: 1, tag: 4, bytes: 9, request: Some(3) },
        Command::Recv { comm: 1, from: None, tag: 2, request: None },
        Command::Sendrecv { comm: WORLD, to: 1, send_tag: 4, bytes: 8, from: Some(0), recv_tag: 5 },
        Command::Wait { requests: vec![3] },
    ];
    assert_eq!(found, expected);
}

#[test]
fn collective_calls_keep_root_and_bytes() {
    let (found, notes) = commands(
        "<Barrier cid='5' time='0' end='0'/>
         <Bcast size='10' rootRank='1' cid='6' time='0' end='0'/>
         <Reduce size='11' rootRank='1' cid='5' time='0' end='0'/>
         <Allreduce size='12' cid='5' time='0' end='0'/>
         <Gather size='13' root='0' cid='5' time='0' end='0'/>
         <Allgather size='14' cid='5' time='0' end='0'/>",
    )
    .expect("sound");
    let expected = [
        Command::Barrier { comm: WORLD },
        Command::Bcast { comm: 1, root: 1, bytes: 10 },
        Command::Reduce { comm: WORLD, root: 1, bytes: 11 },
        Command::Allreduce { comm: WORLD, bytes: 12 },
        Command::Gather { comm: WORLD, root: 0, bytes: 13 },
        Command::Allgather { comm: WORLD, bytes: 14 },
    ];
    assert_eq!((&found[..], notes), (&expected[..], Vec::new()));
}

#[test]
fn files_are_opened_by_name_and_closed_with_the_communicator_of_the_open() {
    let (found, notes) = commands(
        "<File_close fid='1' time='0' end='0'/>
         <File_open cid='6' name='a' fid='1' time='0' end='0'/>
         <File_open cid='5' name='new' fid='2' truncate='true' time='0' end='0'/>
         <File_write_at fid='2' offset='10' size='20' time='0' end='0'/>
         <File_read fid='1' offset='1' size='2' time='0' end='0'/>
         <File_write_at_all fid='1' offset='3' size='4' time='0' end='0'/>
         <File_read_all_at fid='2' offset='5' size='6' time='0' end='0'/>
         <File_get_position fid='1' time='0' end='0'/>
         <File_close fid='1' time='0' end='0'/>",
    )
    .expect("sound");
    let expected = [
        Command::FileOpen { comm: 1, file: 0, truncate: false },
        Command::FileOpen { comm: WORLD, file: 1, truncate: true },
        Command::FileWrite { file: 1, access: Access::at(10, 20) },
        Command::FileRead { file: 0, access: Access::at(1, 2) },
        Command::FileWriteAll { comm: 1, file: 0, access: Access::at(3, 4) },
        Command::FileReadAll { comm: WORLD, file: 1, access: Access::at(5, 6) },
        Command::FileClose { comm: 1, file: 0 },
    ];
    assert_eq!(found, expected);
    assert_eq!(notes, ["rank 0, byte 30: File_close left out: the trace never opened the file 1"]);
}

#[test]
fn views_map_explicit_offsets_by_elements_and_pointers_by_bytes_of_the_file() {
    let with = |filetype: u32, call: &str| {
        let view = format!(
            "<File_open cid='5' name='a' fid='1' time='0' end='0'/>
             <File_set_view fid='1' offset='100' etid='1' filetid='{filetype}' time='0' end='0'/>"
        );
        let (found, _) = commands(&format!("{view}<{call} fid='1' time='0' end='0'/>")).expect("sound");
        match found.last() {
            Some(Command::FileWrite { access: Access::List(list), .. }) => list.clone(),
            other => panic!("{other:?}"),
        }
    };
    let with_view = |call: &str| with(3, call);
    // One double at byte 8 of every 24; the first at 100 + 8.
    let expected = [Extent { offset: 100 + 24 + 8, bytes: 8 }, Extent { offset: 100 + 48 + 8, bytes: 8 }];
    assert_eq!(with_view("File_write_at offset='1' size='16'"), expected);
    assert_eq!(with_view("File_write offset='132' size='16'"), expected);
    assert_eq!(with_view("File_write offset='136' size='8'"), [Extent { offset: 136, bytes: 4 }, Extent { offset: 156, bytes: 4 }]);
    assert_eq!(with_view("File_write offset='0' size='0'"), []);
    // However many blocks there are of nothing, nobody walks over them.
    assert_eq!(with(9, "File_write_at offset='0' size='16'"), []);
    assert_eq!(with(10, "File_write_at offset='0' size='8'"), [Extent { offset: 108, bytes: 8 }]);
}

#[test]
fn views_without_counterpart_are_left_out_and_said() {
    for (filetype, why) in [
        (4, "has a part before its start"),
        (7, "contains itself"),
        (8, "is too large"),
        (11, "is too large"),
        (99, "knows no datatype 99"),
    ] {
        let (found, notes) = commands(&format!(
            "<File_open cid='5' name='a' fid='1' time='0' end='0'/><File_set_view fid='1' offset='0' filetid='{filetype}' time='0' end='0'/>"
        ))
        .expect("sound");
        assert_eq!((found.len(), notes.len()), (1, 1), "{filetype}");
        assert!(notes[0].contains(why), "{notes:?}");
    }
}

#[test]
fn faults_name_rank_byte_and_attribute() {
    for (state, message) in [
        ("<Barrier time='0' end='0'/>", "trace of rank 0, byte 30: <Barrier> lacks the attribute cid"),
        ("<Barrier cid='4' time='0' end='0'/>", "trace of rank 0, byte 30: <Barrier> the project knows no communicator 4 of this rank"),
        (
            "<Bcast cid='5' rootRank='-1' size='1' time='0' end='0'/>",
            "trace of rank 0, byte 30: <Bcast> rootRank is \"-1\", which is no number that could stand there",
        ),
    ] {
        assert_eq!(commands(state).expect_err(state), message);
    }
    let far = "<File_open cid='5' name='a' fid='1' time='0' end='0'/><File_read_at fid='1' offset='18446744073709551615' size='2' time='0' end='0'/>";
    assert!(
        commands(far).expect_err("beyond all files").ends_with("<File_read_at> reaches further than any file, or touches too many ranges")
    );
}

/// What the thesis and its traces say of the application (simulator model, section 10.3).
#[test]
fn the_traced_application_has_the_known_commands() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/partdiff-mpi-io-synced");
    if !folder.is_dir() {
        println!("skipped: {} is absent", folder.display());
        return;
    }
    let read = |name: &str| std::fs::read(folder.join(name)).expect("the folder is complete");
    let project = Project::read(&read("partdiff-par.proj")).complete().expect("sound");
    let files = rank_traces(&project, "partdiff-par").expect("five ranks");
    let traces: Vec<Trace> = files.iter().map(|file| Trace::read(&read(file)).complete().expect("sound")).collect();
    let imported = import(&project, &traces).expect("sound");
    assert_eq!((imported.notes.len(), imported.application.files.len()), (0, 3));
    let count =
        |rank: usize, of: fn(&Command) -> bool| imported.application.programs[rank].commands.iter().filter(|command| of(command)).count();
    assert_eq!(count(1, |command| matches!(command, Command::Sendrecv { .. })), 1000);
    assert_eq!(count(1, |command| matches!(command, Command::FileWrite { .. })), 100);
    assert_eq!(count(1, |command| matches!(command, Command::FileOpen { .. })), 51);
    assert_eq!(count(1, |command| matches!(command, Command::FileClose { .. })), 51);
    assert_eq!(count(1, |command| matches!(command, Command::Compute { .. })), 1206);
    let written = |command: &Command| match command {
        Command::FileWrite { access, .. } => access.bytes(),
        _ => 0,
    };
    let total: u64 = imported.application.programs.iter().flat_map(|program| &program.commands).map(written).sum();
    assert_eq!(total, 262_116_444);
}
