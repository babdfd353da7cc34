//! `weft.h` against the code: the same functions with the same types, structs of the same layout,
//! in C and in C++.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::process::Command;

use weft_system_tests::{Need, available, ok};

use crate::{Library, tree};

/// Prototypes by names, as C has them, of all functions that C may call.
fn in_code() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(tree().join("gateways/capi/src")).unwrap() {
        let text = std::fs::read_to_string(entry.unwrap().path()).unwrap();
        for part in text.split("extern \"C\" fn ").skip(1).filter(|part| part.starts_with("weft_")) {
            let signature = part.split(" {").next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
            let (name, rest) = signature.split_once('(').unwrap();
            let (parameters, result) = rest.split_once(") -> ").unwrap();
            let parameters = parameters.split(", ").map(|parameter| parameter.trim().trim_end_matches(',')).filter(|text| !text.is_empty());
            let parameters: Vec<String> = parameters
                .map(|parameter| {
                    let (name, kind) = parameter.split_once(": ").unwrap();
                    declared(kind, name)
                })
                .collect();
            let list = if parameters.is_empty() { "void".into() } else { parameters.join(", ") };
            found.insert(name.to_string(), format!("{}({list});", declared(result, name)));
        }
    }
    found
}

/// A name with its type.
fn declared(kind: &str, name: &str) -> String {
    let kind = c_type(kind);
    if kind.ends_with('*') { format!("{kind}{name}") } else { format!("{kind} {name}") }
}

fn c_type(kind: &str) -> String {
    let pointer = |to: &str| {
        let to = c_type(to);
        if to.ends_with('*') { format!("{to}*") } else { format!("{to} *") }
    };
    if let Some(to) = kind.strip_prefix("*const *const ") {
        return format!("const {} *const *", c_type(to));
    }
    if let Some(to) = kind.strip_prefix("*const ") {
        return format!("const {}", pointer(to));
    }
    if let Some(to) = kind.strip_prefix("*mut ") {
        return pointer(to);
    }
    match kind {
        "c_char" => "char",
        "c_int" => "int",
        "c_void" => "void",
        "usize" => "size_t",
        "i64" => "int64_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        own if own.starts_with("weft_") => own,
        other => panic!("what is {other} in C?"),
    }
    .into()
}

fn in_header() -> BTreeMap<String, String> {
    let text = std::fs::read_to_string(tree().join("gateways/capi/include/weft.h")).unwrap();
    let prototypes = text.lines().filter(|line| line.starts_with(char::is_alphabetic) && line.contains('(') && line.ends_with(");"));
    let named = |line: &str| {
        let name = line.split('(').next().unwrap().rsplit([' ', '*']).next().unwrap();
        (name.to_string(), line.to_string())
    };
    prototypes.map(named).collect()
}

#[test]
fn the_header_declares_what_the_code_defines() {
    let (code, header) = (in_code(), in_header());
    assert!(code.len() > 35, "{} functions", code.len());
    assert_eq!(header, code);
}

#[test]
fn a_compiler_sees_what_the_library_has() {
    let test = "a_compiler_sees_what_the_library_has";
    let Some(library) = Library::install(test) else { return };
    let mut source = String::from("#include <weft.h>\n#include <stdio.h>\n#include <stddef.h>\ntypedef void (*any)(void);\n");
    source += "any all[] = {";
    in_header().keys().for_each(|name| write!(source, "(any){name}, ").unwrap());
    source += "};\nint main(void) {\n    size_t of[64], here[] = {";
    let fields = [
        ("weft_options", &["timeout_seconds"][..]),
        ("weft_attr", &["size", "gid", "atime_ns", "stripe_width"]),
        ("weft_range", &["data", "done"]),
        ("weft_whole", &["error", "owner"]),
        ("weft_entry", &["attr", "name"]),
        ("weft_space", &["unanswered"]),
    ];
    for (name, fields) in fields {
        write!(source, "sizeof({name}), ").unwrap();
        fields.iter().for_each(|field| write!(source, "offsetof({name}, {field}), ").unwrap());
    }
    source += "};\n    int count = weft_abi_layout(of, 64), i;\n";
    source += "    if (count != (int)(sizeof here / sizeof *here)) return 1;\n";
    source +=
        "    for (i = 0; i < count; i++) if (of[i] != here[i]) { printf(\"number %d: %zu, not %zu\\n\", i, here[i], of[i]); return 2; }\n";
    source += "    for (i = 0; i < (int)(sizeof all / sizeof *all); i++) if (!all[i]) return 3;\n    return 0;\n}\n";
    let path = library.dir.path().join("header.c");
    std::fs::write(&path, source).unwrap();
    ok(&mut Command::new(library.compile(&["cc", "-std=c99", "-Wno-cast-function-type"], &path, "header", false)));
    if available(test, &[Need::Programs(&["c++"])]) {
        let path = library.dir.path().join("header.cc");
        std::fs::write(&path, "#include <weft.h>\nint main() { return weft_error()[0]; }\n").unwrap();
        ok(&mut Command::new(library.compile(&["c++", "-std=c++17"], &path, "header++", false)));
    }
}
