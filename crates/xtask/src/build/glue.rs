//! Changes the JavaScript that wasm-bindgen writes, so that a bundler and workerd accept it.
//!
//! Invariant: the lines to change are searched for, and all others stay; the bundler rejects a line
//! that should have been changed. No code is parsed.

/// The same module text, with each module imported and listed once and the wasm module imported as
/// wrangler and workerd do.
///
/// wasm-bindgen 0.2.130 lists a module once for every function that wasm calls without glue, and an
/// object with two equal keys makes bundlers warn.
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
}
