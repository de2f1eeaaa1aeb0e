//! `docs/accuracy.md`: its generated tables, between text that people wrote.
//!
//! A block is the text between `<!-- made: NAME -->` and `<!-- end -->`. Invariant: everything
//! outside of a block is unchanged, and a block without a place in the document is an error.

pub mod bounds;
pub mod nasa;
pub mod picture;
mod rows;
pub mod synthetic;

/// A generated part of the document, with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its name in the document.
    pub name: &'static str,
    /// Its content, in Markdown.
    pub text: String,
}

/// Marks the end of a block.
const END: &str = "<!-- end -->";

impl Block {
    /// The document with this block in its place.
    ///
    /// # Errors
    /// There is no place of this name.
    pub fn put(&self, document: &str) -> Result<String, String> {
        let Self { name, text } = self;
        let begin = format!("<!-- made: {name} -->\n");
        let places = document.split_once(&begin).and_then(|(before, rest)| {
            let (_, after) = rest.split_once(END)?;
            Some((before, after))
        });
        let (before, after) =
            places.ok_or_else(|| format!("the document has no place for {begin:?}"))?;
        Ok(format!("{before}{begin}\n{}\n\n{END}{after}", text.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_put_in_its_place_and_nothing_else_changes() {
        let document =
            "a\n<!-- made: one -->\nold\n<!-- end -->\nb\n<!-- made: two -->\n<!-- end -->\n";
        let block = Block { name: "one", text: "new\n".to_owned() };
        let put = block.put(document).unwrap();
        assert_eq!(
            put,
            "a\n<!-- made: one -->\n\nnew\n\n<!-- end -->\nb\n<!-- made: two -->\n<!-- end -->\n"
        );
        assert_eq!(block.put(&put).unwrap(), put);
        assert!(Block { name: "three", text: String::new() }.put(document).is_err());
    }
}
