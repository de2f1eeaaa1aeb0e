//! Keeps the library loaded: its timer thread and its counts outlive any one configuration, so
//! Envoy must not unload it, whatever `do_not_close` is.

fn main() {
    println!("cargo::rustc-link-arg-cdylib=-Wl,-z,nodelete");
}
