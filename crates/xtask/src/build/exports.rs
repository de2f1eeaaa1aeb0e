//! Rewrites a module's export section and reads its imports.
//!
//! Invariant: every other section is copied byte for byte. wasm-opt removes the code that is not
//! reachable any more.

use wasm_encoder::{ExportKind, ExportSection, Module, RawSection};
use wasmparser::{ExternalKind, Parser, Payload};

/// The module with the named exports and no others; an error names those that it lacks.
pub fn keep_only(module: &[u8], names: &[&str]) -> Result<Vec<u8>, String> {
    let mut rewritten = Module::new();
    let mut found = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(|error| error.to_string())?;
        if let Payload::ExportSection(reader) = payload {
            let mut section = ExportSection::new();
            for export in reader {
                let export = export.map_err(|error| error.to_string())?;
                if names.contains(&export.name) {
                    section.export(export.name, kind_of(export.kind)?, export.index);
                    found.push(export.name.to_owned());
                }
            }
            rewritten.section(&section);
        } else if let Some((id, range)) = payload.as_section() {
            let data = section(module, range).ok_or("a section ends outside the module")?;
            rewritten.section(&RawSection { id, data });
        }
    }
    let is_missing = |name: &&&str| !found.iter().any(|other| other == **name);
    let missing: Vec<&str> = names.iter().filter(is_missing).copied().collect();
    match missing.is_empty() {
        true => Ok(rewritten.finish()),
        false => Err(format!("not exported: {}", missing.join(", "))),
    }
}

/// `module.name` of every import of the module.
pub fn imports(module: &[u8]) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for payload in Parser::new(0).parse_all(module) {
        if let Payload::ImportSection(reader) = payload.map_err(|error| error.to_string())? {
            for import in reader.into_imports() {
                let import = import.map_err(|error| error.to_string())?;
                names.push(format!("{}.{}", import.module, import.name));
            }
        }
    }
    Ok(names)
}

/// The bytes of a section; `None` where it ends outside the module.
pub fn section(module: &[u8], range: std::ops::Range<u64>) -> Option<&[u8]> {
    module.get(usize::try_from(range.start).ok()?..usize::try_from(range.end).ok()?)
}

fn kind_of(kind: ExternalKind) -> Result<ExportKind, String> {
    match kind {
        ExternalKind::Func => Ok(ExportKind::Func),
        ExternalKind::Table => Ok(ExportKind::Table),
        ExternalKind::Memory => Ok(ExportKind::Memory),
        ExternalKind::Global => Ok(ExportKind::Global),
        ExternalKind::Tag => Ok(ExportKind::Tag),
        other => Err(format!("an export of the kind {other:?} is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::{EntityType, ImportSection, MemorySection, MemoryType};

    fn small() -> Vec<u8> {
        let limits = MemoryType {
            minimum: 1,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        };
        let mut module = Module::new();
        module.section(ImportSection::new().import("env", "outside", EntityType::Memory(limits)));
        module.section(MemorySection::new().memory(limits));
        let mut exports = ExportSection::new();
        exports.export("a", ExportKind::Memory, 0).export("b", ExportKind::Memory, 0);
        module.section(&exports);
        module.finish()
    }

    #[test]
    fn keeps_what_is_named_and_drops_the_rest() {
        let kept = keep_only(&small(), &["b"]).unwrap();
        assert!(keep_only(&kept, &["b"]).is_ok());
        assert_eq!(keep_only(&kept, &["a", "b"]).unwrap_err(), "not exported: a");
    }

    #[test]
    fn names_what_a_module_wants() {
        assert_eq!(imports(&small()).unwrap(), ["env.outside"]);
    }
}
