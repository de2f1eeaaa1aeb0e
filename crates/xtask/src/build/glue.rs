//! Mends the JavaScript that wasm-bindgen writes, so that a bundler and workerd take it as it is.
//!
//! Invariant: what is changed is looked for, line by line, and whatever is not found stays; the
//! bundler refuses what should have been changed. No code is parsed.

/// The same module text, with each module imported and listed once and the wasm module imported as
/// wrangler and workerd do.
///
/// wasm-bindgen 0.2.130 lists a module once for every function that wasm calls without glue, and an
/// object with two equal keys is what bundlers warn of.
pub fn mend(text: &str) -> String {
    let mut modules: Vec<&str> = Vec::new();
    let mut listed_again: Vec<String> = Vec::new();
    let mut mended = String::new();
    for line in text.lines() {
        if let Some((name, module)) = namespace_import(line) {
            if modules.contains(&module) {
                listed_again.push(format!("\"{module}\": {name},"));
                continue;
            }
            modules.push(module);
        } else if listed_again.iter().any(|entry| entry == line.trim()) {
            continue;
        }
        let line = match line.strip_prefix("import source ") {
            Some(rest) => format!("import {rest}"),
            None => line.to_owned(),
        };
        mended.push_str(&line);
        mended.push('\n');
    }
    mended
}

/// How the glue code makes an instance.
const INSTANCE: &str = "new WebAssembly.Instance(wasmModule, __wbg_get_imports())";

/// Makes the instance so that it loads its second half when it first needs it: each instance its
/// own, because an aborted one may still be called.
const WITH_SECOND_HALF: &str = r#"
import secondModule from "./operator_bg.wasm";
function __wbg_instance() {
    const imports = __wbg_get_imports();
    imports.second = { load: () => void new WebAssembly.Instance(secondModule, { first: first.exports }) };
    const first = new WebAssembly.Instance(wasmModule, imports);
    return first;
}
"#;

/// The glue code of a module that was cut in two; `None` when it makes no instance as we know it.
pub fn with_second_half(text: &str) -> Option<String> {
    // Once at the start, and once when an aborted instance is replaced.
    let is_known = text.matches(INSTANCE).count() == 2;
    is_known.then(|| text.replace(INSTANCE, "__wbg_instance()") + WITH_SECOND_HALF)
}

/// Name and module of `import * as name from "module"`.
fn namespace_import(line: &str) -> Option<(&str, &str)> {
    let (name, module) = line.strip_prefix("import * as ")?.split_once(" from \"")?;
    Some((name, module.trim_end_matches(';').strip_suffix('"')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_imported_and_listed_once() {
        let text = "import * as import1 from \"./a.mjs\"\nimport * as import2 from \"./a.mjs\"\n\
                    import * as import3 from \"./b.mjs\";\nconst imports = {\n\
                    \x20   \"./a.mjs\": import1,\n    \"./a.mjs\": import2,\n    \"./b.mjs\": import3,\n};\n";
        let mended = "import * as import1 from \"./a.mjs\"\nimport * as import3 from \"./b.mjs\";\n\
                      const imports = {\n    \"./a.mjs\": import1,\n    \"./b.mjs\": import3,\n};\n";
        assert_eq!(mend(text), mended);
        assert_eq!(mend(mended), mended);
    }

    #[test]
    fn wasm_is_imported_as_a_module() {
        let text = "import source wasmModule from \"./index_bg.wasm\";\n";
        assert_eq!(mend(text), "import wasmModule from \"./index_bg.wasm\";\n");
    }

    #[test]
    fn both_instances_load_the_second_half() {
        let made = format!("let a = {INSTANCE};\na = {INSTANCE};\n");
        let text = with_second_half(&made).unwrap();
        assert!(text.starts_with("let a = __wbg_instance();\na = __wbg_instance();\n"), "{text}");
        assert_eq!(with_second_half(&format!("let a = {INSTANCE};\n")), None);
    }
}
